"""What a server of the lane counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

CONNECTION_ENDS: Final = ("limit", "handshake", "protocol", "fault")
STREAM_ENDS: Final = ("silent", "deadline", "memory", "protocol", "fault")


@dataclass(frozen=True, slots=True)
class LaneMetrics:
    """The metrics of one server; each cause has a child, which stands ready."""

    connections: Any
    connection_ends: Mapping[str, Any]
    stream_ends: Mapping[str, Any]

    @classmethod
    def on(cls, registry: CollectorRegistry, service: str) -> LaneMetrics:
        """Return the metrics of a service; those of one registry are registered once."""
        families = _families.get(registry)
        if families is None:
            families = _families[registry] = _registered(registry)
        connections, connection_ends, stream_ends = families
        return cls(
            connections.labels(service),
            {cause: connection_ends.labels(service, cause) for cause in CONNECTION_ENDS},
            {cause: stream_ends.labels(service, cause) for cause in STREAM_ENDS},
        )


_families: Final[WeakKeyDictionary[CollectorRegistry, tuple[Gauge, Counter, Counter]]] = WeakKeyDictionary()


def _registered(registry: CollectorRegistry) -> tuple[Gauge, Counter, Counter]:
    return (
        Gauge(
            "warmroute_grpc_connections",
            "Open connections to the gRPC server, on the lane only",
            ["service"],
            registry=registry,
        ),
        Counter(
            "warmroute_grpc_connection_ends",
            "Connections that the gRPC server refused or ended, on the lane only, by cause",
            ["service", "cause"],
            registry=registry,
        ),
        Counter(
            "warmroute_grpc_stream_ends",
            "Streams that the gRPC server ended in place of their method, on the lane only, by cause",
            ["service", "cause"],
            registry=registry,
        ),
    )
