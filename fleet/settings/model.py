"""Every setting, with its unit, default and range. Unknown fields and wrong types are refused.

`docs/settings.md` lists the same fields; a test compares the two. Each section has a file of its own.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet.settings.admin import AdminSettings
from fleet.settings.connections import ConnectionSettings
from fleet.settings.control import ControlSettings
from fleet.settings.ext_proc import ExtProcSettings
from fleet.settings.limits import LimitSettings
from fleet.settings.listeners import ListenerSettings
from fleet.settings.pools import PoolSettings
from fleet.settings.recording import RecordingSettings
from fleet.settings.signals import SignalSettings
from fleet.settings.skew import SkewSettings
from fleet.settings.strict import Strict
from fleet.settings.telemetry import TelemetrySettings
from fleet.settings.tls import TlsSettings
from fleet.settings.upgrades import UpgradeSettings
from fleet.settings.weights import WeightSettings
from fleet.settings.xds import XdsSettings


class Settings(Strict):
    """The whole of warmroute.yaml."""

    pools: Annotated[tuple[PoolSettings, ...], Field(min_length=1)]
    listeners: Annotated[tuple[ListenerSettings, ...], Field(min_length=1)]
    xds: XdsSettings = XdsSettings()
    signals: SignalSettings = SignalSettings()
    weights: WeightSettings = WeightSettings()
    skew: SkewSettings = SkewSettings()
    ext_proc: ExtProcSettings = ExtProcSettings()
    control: ControlSettings = ControlSettings()
    admin: AdminSettings = AdminSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    recording: RecordingSettings = RecordingSettings()
    limits: LimitSettings = LimitSettings()
    tls: TlsSettings = TlsSettings()
    connections: ConnectionSettings = ConnectionSettings()
    upgrades: UpgradeSettings = UpgradeSettings()
    allow_plaintext: bool = False
    """Without it or `tls`, addresses beyond Unix sockets and loopback are refused."""

    @property
    def addresses(self) -> dict[str, str]:
        """Path and value of each address of our own; an empty value is none."""
        return {
            "xds.address": self.xds.address,
            "ext_proc.address": self.ext_proc.address,
            "control.address": self.control.address,
            "admin.address": self.admin.address,
            "admin.ext_proc_address": self.admin.ext_proc_address,
        }
