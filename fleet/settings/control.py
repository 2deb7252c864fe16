"""The control stream."""

from __future__ import annotations

from fleet.settings.address import ServerAddress, Transport, transport_in_force
from fleet.settings.strict import Strict


class ControlSettings(Strict):
    """The stream between xds_server and ext_proc workers that run apart."""

    address: ServerAddress = "unix:/run/warmroute/control.sock"
    transport: Transport | None = None
    """The gRPC server of the address; None: by the address."""

    @property
    def transport_in_force(self) -> Transport:
        """The lane for peers on this host, grpcio for others."""
        return transport_in_force(self.transport, self.address)
