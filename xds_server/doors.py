"""The gRPC servers of xds_server: one for Envoys, one for workers and GPU agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fleet.service.credentials import grpc_gate, grpc_server
from fleet.service.serving import GrpcServer

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from fleet.service.tls import Certificates
    from fleet.settings import Settings

    Register = Callable[[grpc.aio.Server], None]


XDS_BYTES: Final = 2 * 1024 * 1024
"""Of a message from an Envoy: 20,000 names of some 50 characters, or a batch of its access log."""
CONTROL_BYTES: Final = 1024 * 1024
"""Of a worker's or GPU agent's report; a larger fleet raises the limit."""
_ENDPOINT_BYTES: Final = 128
"""More than one endpoint takes in a worker's report."""


class Doors:
    """Makes servers with the services that `registers` add; the caller starts them."""

    def __init__(self, settings: Settings, certificates: Certificates) -> None:
        self._settings, self._certificates = settings, certificates
        self._gates = {service: grpc_gate(certificates, settings, service) for service in ("xds", "control")}

    def xds(self, *registers: Register) -> GrpcServer:
        """Make the server of xDS and of access logs, for Envoys."""
        return self._with("xds", self._settings.xds.address, XDS_BYTES, registers)

    def control(self, *registers: Register) -> GrpcServer:
        """Make the server of ext_proc workers and GPU agents."""
        receive_bytes = max(CONTROL_BYTES, _ENDPOINT_BYTES * self._settings.limits.endpoints)
        return self._with("control", self._settings.control.address, receive_bytes, registers)

    def may_have_keys(self, context: Any) -> bool:
        """Whether the peer of a call to the xDS server may receive secrets."""
        gate = self._gates["xds"]
        return gate is None or gate.has(context, "envoys")

    def reconfigure(self, settings: Settings) -> None:
        """Apply changed names; streams of peers that they no longer allow end."""
        for gate in self._gates.values():
            if gate is not None:
                gate.reconfigure(settings.tls.roles)

    def _with(
        self, service: str, address: str, receive_bytes: int, registers: tuple[Register, ...]
    ) -> GrpcServer:
        server = GrpcServer(
            service,
            address,
            self._settings.connections,
            credentials=grpc_server(self._certificates, self._settings, service),
            gate=self._gates[service],
            receive_bytes=receive_bytes,
        )
        for register in registers:
            register(server.server)
        return server
