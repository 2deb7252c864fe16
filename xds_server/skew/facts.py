"""The facts of the decision table, one column per endpoint and pool. NaN is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.sample import DERIVED, SIGNALS
from xds_server.skew.window import mean_observed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.layout import BoolArray, FloatArray, Layout
    from xds_server.skew.window import Window

STATES: Final = frozenset({"stalled", "reachable", "ready", "gpu_health_score"})
"""Signals whose newest value counts; of all others the mean over the newest quarter of the window does."""
COMPARED: Final = (
    "prefix_hit_fall",
    "queue_over_running",
    "work_over_peers",
    "throughput_over_peers",
    "token_rate_over_peers",
)
"""Comparisons with the window's older half, of two figures, and with the pool's other endpoints."""


def facts(window: Window, skews: Mapping[str, BoolArray]) -> dict[str, FloatArray]:
    """Return every fact by name: signals, derived figures, and 1 for each active skew."""
    figures = {name: _now(window, name) for name in (*SIGNALS, *DERIVED)}
    before = mean_observed(window.older("prefix_hit_ratio"))
    work, running = figures["work"], figures["running"]
    throughput = figures["generation_tokens_per_second"]
    token_rate = _quotient(throughput, running)
    figures["prefix_hit_fall"] = before - figures["prefix_hit_ratio"]
    figures["queue_over_running"] = _quotient(figures["queue_depth"], np.maximum(running, 1.0))
    figures["work_over_peers"] = over_peers(work, window.layout, least=1.0)
    figures["throughput_over_peers"] = over_peers(throughput, window.layout, least=0.0)
    figures["token_rate_over_peers"] = over_peers(token_rate, window.layout, least=0.0)
    for kind, active in skews.items():
        figures[kind] = active.astype(np.float64)
    return figures


def over_peers(values: FloatArray, layout: Layout, *, least: float) -> FloatArray:
    """Return each endpoint's value over the mean of the known values of its pool's other endpoints.

    That mean counts as at least `least`. A pool, and an endpoint alone in its pool, has 1. Without any known
    peer the result is unknown.
    """
    result = np.ones(layout.columns)
    count = layout.endpoint_count
    if not count:
        return result
    own = values[:count]
    observed = ~np.isnan(own)
    total = np.add.reduceat(np.where(observed, own, 0.0), layout.starts)[layout.pool_of]
    others = np.add.reduceat(observed.astype(np.float64), layout.starts)[layout.pool_of] - observed
    peers = _quotient(total - np.where(observed, own, 0.0), others)
    alone = layout.counts[layout.pool_of] == 1
    result[:count] = np.where(alone, 1.0, _quotient(own, np.maximum(peers, least)))
    return result


def _now(window: Window, name: str) -> FloatArray:
    newest = window.newest(name)
    if name in STATES:
        return newest
    # If the newest value is unknown, the fact is, whatever the older values are.
    return np.where(np.isnan(newest), np.nan, mean_observed(window.recent(name)))


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0)
