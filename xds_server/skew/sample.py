"""One period's sample as one matrix: a row a figure, a column an endpoint or a pool."""

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
"""Of a cache that is nearly empty, how well it is filled says nothing."""

MOST: Final = 1e18
"""No figure of an engine is larger, and products of those that pass stay finite."""

_ROWS: Final = rows_of(SIGNALS)


def take(layout: Layout, signals: SignalTable, now: float, stale_after_seconds: float) -> FloatArray:
    """Return the sample, shape (figures, columns). Stale, missing and senseless is NaN: unknown."""
    told = signals.arranged(layout.addresses).fresh(now - stale_after_seconds).values[_ROWS]
    told = np.where((told >= 0) & (told <= MOST), told, np.nan)
    endpoints = np.concatenate((told, _derived(told)))
    return np.concatenate((endpoints, pooled(endpoints, layout, ROW)), axis=1)


def _derived(told: FloatArray) -> FloatArray:
    """Return what follows from the signals, in the order of `DERIVED`.

    waiting: in the engine's queue, or of ours in flight and not computed there, whichever is more.
    work: queued and computed, or of ours in flight, whichever is more.
    prefill_per_generated: prompt tokens computed (those in the cache left out) for one token generated.
    """
    get = {name: told[ROW[name]] for name in SIGNALS}
    running, queue, in_flight = get["running"], get["queue_depth"], get["in_flight"]
    held = running + queue
    # Only ours in flight, and none: others may have sent something all the same.
    ours = np.where(np.isnan(held) & (in_flight == 0), np.nan, in_flight)
    waiting = np.fmax(queue, np.maximum(in_flight - running, 0.0))
    computed = get["prompt_tokens_per_second"] * (1.0 - np.minimum(get["prefix_hit_ratio"], 1.0))
    return np.stack(
        (
            waiting,
            np.fmax(held, ours),
            _quotient(running, get["batch_limit"]),
            _fragmentation(get),
            _quotient(computed, get["generation_tokens_per_second"]),
        )
    )


def _fragmentation(get: Mapping[str, FloatArray]) -> FloatArray:
    """Estimate the share of the KV cache in use that holds no token, where the engine does not tell it.

    1 - tokens held / tokens' room in use. A running request holds its prompt and, on the mean, half of its
    answer. Requests that share a prefix hold it once, so the quotient may pass 1: that is no fragmentation.
    """
    held = get["running"] * (get["prompt_tokens_mean"] + get["generation_tokens_mean"] / 2.0)
    room = get["memory_used_ratio"] * get["kv_capacity_tokens"]
    usable = (
        np.isnan(get["kv_fragmentation_ratio"])
        & (get["running"] >= 1.0)
        & (get["memory_used_ratio"] >= LEAST_MEMORY_FOR_ESTIMATE)
    )
    estimate: FloatArray = np.where(usable, np.clip(1.0 - _quotient(held, room), 0.0, 1.0), np.nan)
    return estimate


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide; by nothing, or by next to nothing, is unknown: as senseless as a signal above `MOST`."""
    sound = (denominator > 0) & (numerator <= MOST * denominator)
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=sound)
