"""Times and sizes for people."""

from __future__ import annotations


def seconds(value: float) -> str:
    """A time for people: `15 s`, `250 ms`."""
    return f"{value:g} s" if value >= 1 or value == 0 else f"{value * 1000:g} ms"


def size(value: int) -> str:
    """A number of bytes for people, exact."""
    return f"{value:,} bytes"
