"""What a server of the lane counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import CollectorRegistry

CONNECTION_ENDS: Final = ("limit", "handshake", "protocol", "fault")
STREAM_ENDS: Final = ("silent", "deadline", "memory", "fault")


@dataclass(frozen=True, slots=True)
class LaneMetrics:
    """The metrics of one server; each cause has a child, which stands ready."""

    connections: Any
    connection_ends: Mapping[str, Any]
    stream_ends: Mapping[str, Any]

    @classmethod
    def on(cls, registry: CollectorRegistry, service: str) -> LaneMetrics:
        """Register with a registry that has no other server of the lane."""
        connections = Gauge(
            "warmroute_grpc_connections",
            "Open connections to the gRPC server",
            ["service"],
            registry=registry,
        )
        connection_ends = Counter(
            "warmroute_grpc_connection_ends",
            "Connections that the gRPC server refused or ended, by cause",
            ["service", "cause"],
            registry=registry,
        )
        stream_ends = Counter(
            "warmroute_grpc_stream_ends",
            "Streams that the gRPC server ended in place of their method, by cause",
            ["service", "cause"],
            registry=registry,
        )
        return cls(
            connections.labels(service),
            {cause: connection_ends.labels(service, cause) for cause in CONNECTION_ENDS},
            {cause: stream_ends.labels(service, cause) for cause in STREAM_ENDS},
        )
