"""An endpoint's signals at one moment. Unknown is None, never 0."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


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


SHARES: Final = frozenset(
    (
        "memory_used_ratio",
        "prefix_hit_ratio",
        "kv_fragmentation_ratio",
        "gpu_memory_used_ratio",
        "gpu_utilisation_ratio",
    )
)
"""Fields of `Load` that are parts of a whole. Power is none: a GPU draws more than its limit at times."""
_ROUNDING: Final = 1.01


def signal_of(field: str, value: float | None, observed_at: float, source: str) -> Signal | None:
    """Make the signal of a field of `Load`. More than a whole is unknown: it may be a percentage."""
    if field in SHARES and value is not None and value > 1.0:
        value = 1.0 if value <= _ROUNDING else None
    return signal(value, observed_at, source)


@dataclass(frozen=True, slots=True)
class Load:
    """An endpoint's signals; each is optional and has its own age."""

    memory_used_ratio: Signal | None = None
    """KV cache in use, 0 to 1."""
    queue_depth: Signal | None = None
    """Requests waiting in the engine."""
    running: Signal | None = None
    """Requests being computed in the engine."""
    latency_p50_seconds: Signal | None = None
    """Median time to first token over the window, as the engine tells it; else to the first byte that Envoy
    saw."""
    latency_p99_seconds: Signal | None = None
    """P99 of the same."""
    prefix_hit_ratio: Signal | None = None
    """Share of prompt tokens found in the prefix cache over the window, 0 to 1."""
    kv_capacity_tokens: Signal | None = None
    """Tokens that the KV cache holds."""
    prefill_tokens_per_second: Signal | None = None
    """Prefill rate seen over the window, cached tokens not counted."""
    prefilling_mean: Signal | None = None
    """Requests in prefill at once, in the mean over the window: the work behind the rate."""
    prompt_tokens_per_second: Signal | None = None
    """Prompt tokens taken in over the window, cached ones included."""
    generation_tokens_per_second: Signal | None = None
    """Tokens generated over the window."""
    prompt_tokens_mean: Signal | None = None
    """Mean length of the prompts that finished in the window."""
    prompt_tokens_variance: Signal | None = None
    """Variance of the same, in tokens squared."""
    generation_tokens_mean: Signal | None = None
    """Mean length of the answers that finished in the window."""
    preemptions_per_second: Signal | None = None
    """Requests that lost their place in the KV cache."""
    batch_limit: Signal | None = None
    """The most requests that the engine computes at once."""
    kv_fragmentation_ratio: Signal | None = None
    """Share of the KV cache in use that holds no token, 0 to 1."""
    awake: Signal | None = None
    """1 while the engine is awake; 0 while it sleeps and serves nothing until somebody wakes it."""
    progress_total: Signal | None = None
    """Sum of the engine's counters that grow while it works: only whether it moves means anything."""

    gpu_memory_used_ratio: Signal | None = None
    """Of the fullest of the endpoint's GPUs, against its own memory, 0 to 1."""
    gpu_memory_total_bytes: Signal | None = None
    """Of all its GPUs."""
    gpu_utilisation_ratio: Signal | None = None
    """Mean of its GPUs, 0 to 1."""
    gpu_temperature_celsius: Signal | None = None
    """Of the hottest."""
    gpu_power_ratio: Signal | None = None
    """Power over the enforced limit, of the GPU nearest to it."""
    gpu_throttled_ratio: Signal | None = None
    """Share of its GPUs whose clocks hardware holds down, 0 to 1."""
    gpu_health_score: Signal | None = None
    """1.0 fine, 0.9 transient faults, 0.4 isolated, 0.0 drained; of the worst GPU."""

    first_byte_p50_seconds: Signal | None = None
    """As Envoy saw it, of answers that are no errors."""
    first_byte_p99_seconds: Signal | None = None
    duration_p99_seconds: Signal | None = None
    """From the request's start to the last byte of its answer, as Envoy saw it."""
    requests_per_second: Signal | None = None
    """Finished through Envoy over the window."""
    error_ratio: Signal | None = None
    """Share of 5xx answers and failed connections over `signals.error_window_seconds`; 4xx is no error."""

    in_flight: Signal | None = None
    """Requests of ours on their way, over all ext_proc workers."""
    picked_duration_p99_seconds: Signal | None = None
    """End to end, of requests that ext_proc picked it for; the slowest worker's."""

    stalled: Signal | None = None
    """1 when it hangs while requests of ours wait; 0 when it works."""
    trust_ratio: Signal | None = None
    """1 while its answers are good; falls with failures, grows back with successes, never 0."""
    reachable: Signal | None = None
    """1 when the engine's metrics page answered; 0 when its port refused the connection, gave none twice in a
    row, or there is no route."""
    ready: Signal | None = None
    """0 while its probe has to pass before it gets anything new: it has restarted, or fails."""


LOAD_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Load))
PICK_FIELDS: tuple[str, ...] = (
    "memory_used_ratio",
    "queue_depth",
    "running",
    "latency_p50_seconds",
    "latency_p99_seconds",
    "prefix_hit_ratio",
    "kv_capacity_tokens",
    "prefill_tokens_per_second",
    "prefilling_mean",
    "generation_tokens_per_second",
    "batch_limit",
    "gpu_memory_used_ratio",
    "gpu_health_score",
    "error_ratio",
    "stalled",
    "trust_ratio",
    "reachable",
    "ready",
    "progress_total",
)
"""What picks look at: these travel to ext_proc workers that run apart."""


_held_by: Final[Callable[[Load], tuple[Signal | None, ...]]] = attrgetter(*LOAD_FIELDS)
"""Every signal of a load at once: the ticks compare thousands of loads, and this is the cheapest way in."""


def same_values(one: Load, other: Load) -> bool:
    """Whether two loads say the same; their ages may differ."""
    these, those = _held_by(one), _held_by(other)
    if these == those:
        return True
    for here, there in zip(these, those, strict=True):
        if here is not there and (here and here[0]) != (there and there[0]):
            return False
    return True


def fresh(load: Load, now: float, stale_after_seconds: float) -> Load:
    """Return the load without the signals older than `stale_after_seconds`: they are unknown now."""
    held_by = _held_by(load)
    for held in held_by:
        if held is not None and now - held[1] > stale_after_seconds:
            break
    else:
        return load
    return Load(
        *[
            None if held is not None and now - held.observed_at > stale_after_seconds else held
            for held in held_by
        ]
    )
