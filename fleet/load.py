"""An endpoint's signals at one moment. Unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import NamedTuple


class Signal(NamedTuple):
    """One number about an endpoint. Its unit stands in the name of the field that holds it."""

    value: float
    observed_at: float
    """Seconds on the holder's monotonic clock."""
    source: str
    """Where it was read: `scrape`, `traffic`, ..."""


def signal(value: float | None, observed_at: float, source: str) -> Signal | None:
    """Make a signal, or None for what is unknown: the one border where numbers are checked finite.

    A negative number is no count, share or duration, so it is unknown too.
    """
    if value is None or not isfinite(value) or value < 0:
        return None
    return Signal(float(value), observed_at, source)


@dataclass(frozen=True, slots=True)
class Load:
    """An endpoint's signals; each is optional and has its own age."""

    memory_used_ratio: Signal | None = None
    """KV cache (or GPU) memory in use, 0 to 1."""
    queue_depth: Signal | None = None
    """Requests waiting in the engine."""
    running: Signal | None = None
    """Requests being computed in the engine."""
    latency_p99_seconds: Signal | None = None
    """P99 of the time to first token over the window."""
    prefix_hit_ratio: Signal | None = None
    """Share of prompt tokens found in the prefix cache over the window, 0 to 1."""
    kv_capacity_tokens: Signal | None = None
    """Tokens that the KV cache holds."""
    prefill_tokens_per_second: Signal | None = None
    """Prefill rate seen over the window, cached tokens not counted."""
    reachable: Signal | None = None
    """1 when the engine's metrics page answered, 0 when its port refused the connection."""


LOAD_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Load))


def same_values(one: Load, other: Load) -> bool:
    """Whether two loads say the same; their ages may differ."""
    for name in LOAD_FIELDS:
        here, there = getattr(one, name), getattr(other, name)
        if (here and here.value) != (there and there.value):
            return False
    return True


def fresh(load: Load, now: float, stale_after_seconds: float) -> Load:
    """Return the load without the signals older than `stale_after_seconds`: they are unknown now."""
    stale = {
        name: None
        for name in LOAD_FIELDS
        if (held := getattr(load, name)) is not None and now - held.observed_at > stale_after_seconds
    }
    return replace(load, **stale) if stale else load
