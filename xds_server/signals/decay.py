"""When a number is believed: extremes fade where nothing of ours runs, and what returns waits. Pure.

**Fading.** An engine that was slow, full or queued when we stopped sending there may report that for ever:
with no requests its windows do not move, and with that figure it gets no requests. So a value above twice its
peers' mean, of an endpoint without any request of ours, fades to that mean with a time constant. Only values
that keep traffic away need this: one that draws traffic is put right by the traffic.

**Returning.** Signals that were silent for longer than stale, and come back, count only when they have been
there for a while: the first figures after a pause are of before the pause, or of an empty engine.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

EXTREME_RATIO: Final = 2.0
"""Against the mean of the endpoint's peers: beyond it a value is extreme."""
FADING_SIGNALS: Final = (
    "memory_used_ratio",
    "queue_depth",
    "running",
    "latency_p50_seconds",
    "latency_p99_seconds",
    "first_byte_p50_seconds",
    "first_byte_p99_seconds",
    "duration_p99_seconds",
    "picked_duration_p99_seconds",
)
"""Signals that lower traffic when they rise. A GPU's own memory and temperature are not among them: they hold
for every user of the GPU."""


def fade(values: FloatArray, idle_seconds: FloatArray, pools: IntArray, decay_seconds: float) -> FloatArray:
    """Return the values, one row an endpoint and one column a signal, with extremes faded. NaN is unknown.

    Args:
        values: fresh ones only.
        idle_seconds: for how long nothing of ours has been there; 0 while something is, or unknown.
        pools: number of each endpoint's pool, from 0; its peers are the others of it.
        decay_seconds: the time constant; 0 switches fading off.
    """
    if not decay_seconds or not idle_seconds.any():
        return values
    finite = np.isfinite(values)
    filled = np.where(finite, values, 0.0)
    sums, counts = (
        np.stack([np.bincount(pools, weights=column) for column in columns.T], axis=1)
        for columns in (filled, finite)
    )
    others = counts[pools] - finite
    mean = (sums[pools] - filled) / np.maximum(others, 1)
    extreme = finite & (others > 0) & (filled > EXTREME_RATIO * mean) & (idle_seconds[:, None] > 0)
    remaining_ratio = np.exp(-idle_seconds / decay_seconds)[:, None]
    return np.where(extreme, mean + (filled - mean) * remaining_ratio, values)


class PageTimes(Rows):
    """When each endpoint's page was read, and when it returned after a silence; newcomers do not return."""

    read_at: FloatArray = np.full(1, -np.inf)
    """-inf: never."""
    _returned_at: FloatArray = np.full(1, -np.inf)

    def step(self, read_at: FloatArray, now: float, stale_after: float, returning: float) -> BoolArray:
        """Take when the newest page was read (NaN: it is unknown); return whose signals do not count yet."""
        back = np.isfinite(self.read_at) & (read_at > self.read_at + stale_after)
        self._returned_at = np.where(back, read_at, self._returned_at)
        self.read_at = np.fmax(self.read_at, read_at)
        return now - self._returned_at < returning
