"""The gRPC servers of xds_server: one for Envoys, one for what belongs to us."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.credentials import grpc_gate, grpc_server
from fleet.serving import GrpcServer

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from fleet.settings import Settings
    from fleet.tls import Certificates

    Register = Callable[[grpc.aio.Server], None]


class Doors:
    """Makes servers that are not started yet, with the services that `registers` add."""

    def __init__(self, settings: Settings, certificates: Certificates) -> None:
        self._settings, self._certificates = settings, certificates
        self._gates = {service: grpc_gate(certificates, settings, service) for service in ("xds", "control")}

    def xds(self, *registers: Register) -> GrpcServer:
        """The one by which Envoys are configured and tell what they served."""
        return self._with("xds", self._settings.xds.address, registers)

    def control(self, *registers: Register) -> GrpcServer:
        """The one of ext_proc workers and GPU agents."""
        return self._with("control", self._settings.control.address, registers)

    def may_have_keys(self, context: Any) -> bool:
        """Whether the peer of a call to xds may be sent secrets."""
        gate = self._gates["xds"]
        return gate is None or gate.has(context, "envoys")

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed names; streams that they no longer allow end."""
        for gate in self._gates.values():
            if gate is not None:
                gate.reconfigure(settings.tls.roles)

    def _with(self, service: str, address: str, registers: tuple[Register, ...]) -> GrpcServer:
        server = GrpcServer(
            service,
            address,
            self._settings.connections,
            credentials=grpc_server(self._certificates, self._settings, service),
            gate=self._gates[service],
        )
        for register in registers:
            register(server.server)
        return server
