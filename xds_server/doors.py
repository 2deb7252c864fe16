"""The gRPC servers of xds_server: one for Envoys, one for workers and GPU agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet.lane.budget import Budget
from fleet.lane.context import Services
from fleet.lane.metrics import LaneMetrics
from fleet.lane.server import LaneServer
from fleet.service.credentials import certificate_provider, gate_of, grpc_gate, grpc_server
from fleet.service.gate import LAST_SECONDS
from fleet.service.serving import GrpcServer
from fleet.settings.connections import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from fleet.service.gate import GrpcGate
    from fleet.service.tls import CertificateProvider, Certificates
    from fleet.settings import Settings
    from fleet.settings.address import Transport

    Register = Callable[[Any], None]
    """Adds a service to a `grpc.aio.Server` or `Services`."""


XDS_BYTES: Final = 2 * 1024 * 1024
"""Of a message from an Envoy: 20,000 names of some 50 characters, or a batch of its access log."""
CONTROL_BYTES: Final = 1024 * 1024
"""Of a worker's or GPU agent's report; a larger fleet raises the limit."""
_ENDPOINT_BYTES: Final = 128
"""More than one endpoint takes in a worker's report."""
MESSAGE_BYTES: Final = 16 * 1024 * 1024
"""Of messages of all peers of a door beyond their stream's window; further ones wait."""
UNFINISHED_BYTES: Final = 40 * 1024 * 1024
"""Of parts of the others, and of those that methods have in hand; above it, the largest calls end."""
_UNREAD_BYTES: Final = 1 << 62
"""No limit: a method has one message that its client has not read, and a push is one copy for all clients."""


class Doors:
    """Makes servers with the services that `registers` add; the caller starts them."""

    def __init__(self, settings: Settings, certificates: Certificates, registry: CollectorRegistry) -> None:
        self._settings, self._certificates, self._registry = settings, certificates, registry
        self._guards: dict[str, GrpcGate | Services] = {}

    def xds(self, *registers: Register) -> GrpcServer | LaneServer:
        """Make the server of xDS and of access logs, for Envoys."""
        xds = self._settings.xds
        return self._server("xds", xds.address, xds.transport_in_force, XDS_BYTES, registers)

    def control(self, *registers: Register) -> GrpcServer | LaneServer:
        """Make the server of ext_proc workers and GPU agents."""
        control = self._settings.control
        receive_bytes = max(CONTROL_BYTES, _ENDPOINT_BYTES * self._settings.limits.endpoints)
        return self._server("control", control.address, control.transport_in_force, receive_bytes, registers)

    def may_have_keys(self, context: Any) -> bool:
        """Whether the peer of a call to the xDS server may receive secrets."""
        guard = self._guards.get("xds")
        return guard is None or guard.has(context, "envoys")

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed names; streams of peers that they no longer allow end."""
        for guard in self._guards.values():
            guard.reconfigure(settings.tls.roles)

    def _server(
        self,
        service: str,
        address: str,
        transport: Transport,
        receive_bytes: int,
        registers: tuple[Register, ...],
    ) -> GrpcServer | LaneServer:
        if transport == "lane":
            return self._lane(service, address, receive_bytes, registers)
        gate = grpc_gate(self._certificates, self._settings, service)
        server = GrpcServer(
            service,
            address,
            self._settings.connections,
            credentials=grpc_server(self._certificates, self._settings, service),
            gate=gate,
            receive_bytes=receive_bytes,
        )
        for register in registers:
            register(server.server)
        if gate is not None:
            self._guards[service] = gate
        return server

    def _lane(
        self, service: str, address: str, receive_bytes: int, registers: tuple[Register, ...]
    ) -> LaneServer:
        gate = gate_of(self._certificates, self._settings, service)
        services = self._guards[service] = Services(gate)
        for register in registers:
            register(services)
        return lane_server(
            service,
            address,
            services,
            receive_bytes,
            self._settings.connections,
            tls=certificate_provider(self._certificates, self._settings, service),
            metrics=LaneMetrics.on(self._registry, service),
        )


def lane_server(
    name: str,
    address: str,
    services: Services,
    receive_bytes: int = XDS_BYTES,
    connections: ConnectionSettings | None = None,
    *,
    tls: CertificateProvider | None = None,
    metrics: LaneMetrics | None = None,
) -> LaneServer:
    """Make a server of the lane with the bounds of a door."""
    server = LaneServer(
        name,
        address,
        connections or ConnectionSettings(),
        services.methods,
        tls=tls,
        receive_bytes=receive_bytes,
        budget=Budget(MESSAGE_BYTES, _UNREAD_BYTES, UNFINISHED_BYTES),
        gate=services.gate,
        metrics=metrics,
    )
    server.last_seconds = LAST_SECONDS
    return server
