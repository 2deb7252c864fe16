"""The discovery service."""

from __future__ import annotations

from fleet.settings.address import ServerAddress
from fleet.settings.strict import OptionalFilePath, Seconds, Strict


class XdsSettings(Strict):
    """Where the discovery service listens and how often it computes."""

    address: ServerAddress = "unix:/run/warmroute/xds.sock"
    tick_seconds: Seconds = 0.25
    state_path: OptionalFilePath | None = None
    """File of the last good state; empty: none. By default next to the Unix socket of `address`."""
