"""One period's sample as one matrix: a row per figure, a column per endpoint and pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.signals import rows_of
from xds_server.skew.pooled import pooled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.signals import SignalTable
    from xds_server.skew.layout import FloatArray, Layout

SIGNALS: Final = (
    "latency_p50_seconds",
    "latency_p99_seconds",
    "requests_per_second",
    "prompt_tokens_mean",
    "prompt_tokens_variance",
    "running",
    "queue_depth",
    "in_flight",
    "batch_limit",
    "generation_tokens_mean",
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "prefix_hit_ratio",
    "kv_capacity_tokens",
    "kv_fragmentation_ratio",
    "memory_used_ratio",
    "preemptions_per_second",
    "error_ratio",
    "gpu_throttled_ratio",
    "gpu_health_score",
    "stalled",
    "reachable",
    "ready",
)
"""Rows that are signals."""
DERIVED: Final = (
    "waiting",
    "work",
    "batch_fill_ratio",
    "kv_fragmentation_estimate",
    "prefill_per_generated",
)
"""Rows that are computed from these; `_derived` says how."""
ROW: Final[Mapping[str, int]] = {name: row for row, name in enumerate((*SIGNALS, *DERIVED))}

LEAST_MEMORY_FOR_ESTIMATE: Final = 0.05
"""Below this share of memory in use, the estimate would be noise."""

MOST: Final = 1e18
"""Larger figures are errors; products of smaller ones stay finite."""

_ROWS: Final = rows_of(SIGNALS)


def take(layout: Layout, signals: SignalTable, now: float, stale_after_seconds: float) -> FloatArray:
    """Return the sample, shape (figures, columns). Stale, missing and impossible values are NaN: unknown."""
    values = signals.arranged(layout.addresses).fresh(now - stale_after_seconds).values[_ROWS]
    values = np.where((values >= 0) & (values <= MOST), values, np.nan)
    endpoints = np.concatenate((values, _derived(values)))
    return np.concatenate((endpoints, pooled(endpoints, layout, ROW)), axis=1)


def _derived(values: FloatArray) -> FloatArray:
    """Return the figures of `DERIVED`, in that order.

    waiting: requests in the engine's queue, or in flight from us and not running, whichever are more.
    work: queued and running requests, or those in flight from us, whichever are more.
    prefill_per_generated: prompt tokens computed (without those in the cache) per token generated.
    """
    get = {name: values[ROW[name]] for name in SIGNALS}
    running, queue, in_flight = get["running"], get["queue_depth"], get["in_flight"]
    load = running + queue
    # If only requests in flight are known, and there are none, other clients may still have sent some.
    ours = np.where(np.isnan(load) & (in_flight == 0), np.nan, in_flight)
    waiting = np.fmax(queue, np.maximum(in_flight - running, 0.0))
    computed = get["prompt_tokens_per_second"] * (1.0 - np.minimum(get["prefix_hit_ratio"], 1.0))
    return np.stack(
        (
            waiting,
            np.fmax(load, ours),
            _quotient(running, get["batch_limit"]),
            _fragmentation(get),
            _quotient(computed, get["generation_tokens_per_second"]),
        )
    )


def _fragmentation(get: Mapping[str, FloatArray]) -> FloatArray:
    """Estimate the share of the KV cache in use without a token, if the engine does not report it.

    1 - cached tokens / capacity in use (tokens). A running request has its prompt and, on average, half of
    its answer in the cache. Requests with a shared prefix share its blocks, so the quotient may exceed 1,
    which counts as no fragmentation.
    """
    tokens = get["running"] * (get["prompt_tokens_mean"] + get["generation_tokens_mean"] / 2.0)
    room = get["memory_used_ratio"] * get["kv_capacity_tokens"]
    usable = (
        np.isnan(get["kv_fragmentation_ratio"])
        & (get["running"] >= 1.0)
        & (get["memory_used_ratio"] >= LEAST_MEMORY_FOR_ESTIMATE)
    )
    estimate: FloatArray = np.where(usable, np.clip(1.0 - _quotient(tokens, room), 0.0, 1.0), np.nan)
    return estimate


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; unknown where the quotient is not finite or exceeds `MOST`."""
    sound = (denominator > 0) & (numerator <= MOST * denominator)
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=sound)
