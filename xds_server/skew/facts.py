"""The figures that the decision table looks at, a column each endpoint and pool. NaN is unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.sample import DERIVED, SIGNALS
from xds_server.skew.window import mean_known

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.skew.layout import BoolArray, FloatArray, Layout
    from xds_server.skew.window import Window

STATES: Final = frozenset({"stalled", "reachable", "ready", "gpu_health_score"})
"""Of these the newest counts; of all others the mean over the newest quarter of the window."""
COMPARED: Final = (
    "prefix_hit_fall",
    "queue_over_running",
    "work_over_peers",
    "throughput_over_peers",
    "token_rate_over_peers",
)
"""Figures that compare: with the window's older half, with each other, with the pool's other endpoints."""


def facts(window: Window, skews: Mapping[str, BoolArray]) -> dict[str, FloatArray]:
    """Return every fact by name: signals, what is derived of them, and 1 for each skew that lasts."""
    held = {name: _now(window, name) for name in (*SIGNALS, *DERIVED)}
    before = mean_known(window.older("prefix_hit_ratio"))
    work, running = held["work"], held["running"]
    throughput = held["generation_tokens_per_second"]
    token_rate = _quotient(throughput, running)
    held["prefix_hit_fall"] = before - held["prefix_hit_ratio"]
    held["queue_over_running"] = _quotient(held["queue_depth"], np.maximum(running, 1.0))
    held["work_over_peers"] = over_peers(work, window.layout, least=1.0)
    held["throughput_over_peers"] = over_peers(throughput, window.layout, least=0.0)
    held["token_rate_over_peers"] = over_peers(token_rate, window.layout, least=0.0)
    for kind, active in skews.items():
        held[kind] = active.astype(np.float64)
    return held


def over_peers(values: FloatArray, layout: Layout, *, least: float) -> FloatArray:
    """Return each endpoint's value over the mean of the others of its pool that are known.

    That mean counts as at least `least`. A pool, and an endpoint alone in its pool, is on a par: 1. Where no
    peer is known it is unknown.
    """
    result = np.ones(layout.columns)
    count = layout.endpoint_count
    if not count:
        return result
    own = values[:count]
    known = ~np.isnan(own)
    total = np.add.reduceat(np.where(known, own, 0.0), layout.starts)[layout.pool_of]
    others = np.add.reduceat(known.astype(np.float64), layout.starts)[layout.pool_of] - known
    peers = _quotient(total - np.where(known, own, 0.0), others)
    alone = layout.counts[layout.pool_of] == 1
    result[:count] = np.where(alone, 1.0, _quotient(own, np.maximum(peers, least)))
    return result


def _now(window: Window, name: str) -> FloatArray:
    newest = window.newest(name)
    if name in STATES:
        return newest
    # What is unknown now is unknown, whatever it has been.
    return np.where(np.isnan(newest), np.nan, mean_known(window.recent(name)))


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    return np.divide(numerator, denominator, out=np.full_like(numerator, np.nan), where=denominator > 0)
