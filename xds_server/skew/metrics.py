"""Metrics of skew: how many last, and how many there have been."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

from xds_server.skew.detectors import DETECTORS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from prometheus_client import CollectorRegistry

    from xds_server.skew.event import SkewEvent


class SkewMetrics:
    """Labels are kinds and the settings' pools: both few."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._active = Gauge(
            "warmroute_skew_active",
            "Skews that last: endpoints that have one, and one more for the pool as a whole",
            ["kind", "pool"],
            registry=registry,
        )
        begun = Counter("warmroute_skew_events_total", "Skews that have begun", ["kind"], registry=registry)
        self._begun = {kind: begun.labels(kind) for kind in DETECTORS}
        self._pools: frozenset[str] = frozenset()

    def began(self, kind: str) -> None:
        """Count an event."""
        self._begun[kind].inc()

    def show(self, pools: Collection[str], active: Iterable[SkewEvent]) -> None:
        """Set the gauges of all pools; those of pools that have left go."""
        counts = dict.fromkeys(((kind, pool) for kind in DETECTORS for pool in pools), 0)
        for event in active:
            counts[event.kind, event.pool] += 1
        for pool in self._pools.difference(pools):
            for kind in DETECTORS:
                self._active.remove(kind, pool)
        for (kind, pool), count in counts.items():
            self._active.labels(kind, pool).set(count)
        self._pools = frozenset(pools)
