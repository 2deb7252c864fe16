"""The control stream."""

from __future__ import annotations

from fleet.settings.address import ServerAddress
from fleet.settings.strict import Strict


class ControlSettings(Strict):
    """The stream between xds_server and ext_proc workers that run apart."""

    address: ServerAddress = "unix:/run/warmroute/control.sock"
