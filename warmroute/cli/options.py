"""Values of options that several verbs have. Errors show the value and what is allowed."""

from __future__ import annotations

from argparse import ArgumentTypeError
from math import inf


def seconds(text: str, least: float = 0.0, most: float = inf) -> float:
    """Read a number of seconds above 0, from `least` to `most`."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if 0 < value < inf and least <= value <= most:
        return value
    allowed = f"{least:g} to {most:g} seconds" if most < inf else "a number of seconds above 0"
    raise ArgumentTypeError(f"{text!r}; allowed: {allowed}")


def interval(text: str) -> float:
    """Read the seconds between two samples."""
    return seconds(text, 0.1, 3600)


def whole(text: str, most: int) -> int:
    """Read a whole number from 1 to `most`."""
    if text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most:
        return int(text)
    raise ArgumentTypeError(f"{text!r}; allowed: a whole number from 1 to {most}")
