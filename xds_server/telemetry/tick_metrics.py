"""Metrics of ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True)
class TickMetrics:
    """Of one xds_server."""

    updates: Counter
    faults: Counter
    blind: Gauge

    @classmethod
    def of(cls, registry: CollectorRegistry) -> TickMetrics:
        """Create the metrics in a registry."""
        return cls(
            Counter("warmroute_weight_updates_total", "Published weight updates", registry=registry),
            Counter("warmroute_tick_faults_total", "Ticks that failed by our fault", registry=registry),
            Gauge(
                "warmroute_blind_pools",
                "Pools of which no endpoint tells memory, queue or running",
                registry=registry,
            ),
        )
