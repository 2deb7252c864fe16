"""The gRPC servers of xds_server: one for Envoys, one for what belongs to us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.credentials import grpc_server
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

    def xds(self, *registers: Register) -> GrpcServer:
        """The one by which Envoys are configured and tell what they served."""
        credentials = grpc_server(self._certificates, self._settings, "xds")
        return self._with(
            GrpcServer(
                "xds", self._settings.xds.address, self._settings.connections, credentials=credentials
            ),
            registers,
        )

    def control(self, *registers: Register) -> GrpcServer:
        """The one of ext_proc workers and GPU agents."""
        credentials = grpc_server(self._certificates, self._settings, "control")
        return self._with(
            GrpcServer(
                "control", self._settings.control.address, self._settings.connections, credentials=credentials
            ),
            registers,
        )

    @staticmethod
    def _with(server: GrpcServer, registers: tuple[Register, ...]) -> GrpcServer:
        for register in registers:
            register(server.server)
        return server
