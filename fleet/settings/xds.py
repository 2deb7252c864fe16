"""The discovery service."""

from __future__ import annotations

from fleet.settings.address import ServerAddress, Transport, transport_in_force
from fleet.settings.strict import OptionalFilePath, Seconds, Strict


class XdsSettings(Strict):
    """Where the discovery service listens and how often it computes."""

    address: ServerAddress = "unix:/run/warmroute/xds.sock"
    transport: Transport | None = None
    """The gRPC server of the address; None: by the address."""
    tick_seconds: Seconds = 0.25
    state_path: OptionalFilePath | None = None
    """File of the last good state; empty: none. By default next to the Unix socket of `address`."""

    @property
    def transport_in_force(self) -> Transport:
        """The lane for peers on this host, grpcio for others."""
        return transport_in_force(self.transport, self.address)
