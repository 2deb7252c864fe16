"""What a worker counts of what it shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True)
class SharedMetrics:
    """Children stand ready where their labels are known."""

    connected: Gauge
    lag: Gauge
    sent: Any
    taken: Any
    pending: Any
    late: Any
    errors: Counter

    @classmethod
    def on(cls, registry: CollectorRegistry) -> SharedMetrics:
        """Register with a registry."""
        told = Counter(
            "warmroute_shared_blocks",
            "Prompt blocks told to other workers, and taken over from them",
            ["direction"],
            registry=registry,
        )
        lost = Counter(
            "warmroute_shared_lost_blocks",
            "Prompt blocks that were not told, or not taken over",
            ["reason"],
            registry=registry,
        )
        return cls(
            connected=Gauge(
                "warmroute_shared_connected", "1 while the shared stream is read", registry=registry
            ),
            lag=Gauge(
                "warmroute_shared_lag_seconds", "From sending a batch to reading it back", registry=registry
            ),
            sent=told.labels("sent"),
            taken=told.labels("taken"),
            pending=lost.labels("pending"),
            late=lost.labels("late"),
            errors=Counter(
                "warmroute_shared_errors",
                "Failed exchanges with the stream's server, and entries that are no batch",
                ["kind"],
                registry=registry,
            ),
        )
