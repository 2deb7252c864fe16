"""The admin HTTP server."""

from __future__ import annotations

from fleet.settings.address import OptionalTcpAddress
from fleet.settings.strict import OptionalFilePath, Strict


class AdminSettings(Strict):
    """The admin HTTP server: status, health and /metrics. Empty address: off."""

    address: OptionalTcpAddress = "127.0.0.1:19000"
    ext_proc_address: OptionalTcpAddress = "127.0.0.1:19001"
    """For `warmroute ext-proc`, which may run on the same host."""
    token_file: OptionalFilePath = ""
    """A file with the bearer token of requests; required beyond loopback."""
