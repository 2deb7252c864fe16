"""Every setting, with its unit, default and range. Unknown fields and wrong types are refused.

`docs/settings.md` lists the same fields; a test compares the two. The sections stand in files beside this.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fleet.settings.address import ServerAddress, is_local
from fleet.settings.connections import ConnectionSettings
from fleet.settings.picks import PickSettings
from fleet.settings.pools import ListenerSettings, PoolSettings
from fleet.settings.replicas import MOST_WORKERS, SharedSettings
from fleet.settings.signals import SignalSettings
from fleet.settings.skew import SkewSettings
from fleet.settings.sla import IdempotencySettings
from fleet.settings.strict import Seconds
from fleet.settings.strict import Strict as _Strict
from fleet.settings.telemetry import AdminSettings, TelemetrySettings
from fleet.settings.tls import TlsSettings
from fleet.settings.upgrades import UpgradeSettings
from fleet.settings.weights import WeightSettings


class XdsSettings(_Strict):
    """Where the discovery service listens and how often it computes."""

    address: ServerAddress = "unix:/run/warmroute/xds.sock"
    tick_seconds: Seconds = 0.25
    state_path: Annotated[str, Field(pattern=r"^(/[^\x00]*)?$", max_length=4096)] | None = None
    """File of the last good state; empty: none. By default beside the Unix socket of `address`."""


class ExtProcSettings(_Strict):
    """Where the external processor listens, where Envoy finds it, and how it picks."""

    address: ServerAddress = "unix:/run/warmroute/ext_proc.sock"
    message_timeout_seconds: Annotated[float, Field(gt=0, le=10)] = 0.25
    workers: Annotated[int, Field(ge=1, le=MOST_WORKERS)] = 1
    """Processes of `warmroute ext-proc` on one host; Envoys spread requests over all of them."""
    shared: SharedSettings = SharedSettings()
    idempotency: IdempotencySettings = IdempotencySettings()
    name_always: bool = False
    """Name an endpoint by weights where nothing is picked: for gateways that cannot choose by themselves."""
    clear_route_cache: bool = False
    """Let Envoy choose the route again with the headers that are set: where routes match on one of them."""
    pick: PickSettings = PickSettings()


class ControlSettings(_Strict):
    """The stream between xds_server and ext_proc workers that run apart."""

    address: ServerAddress = "unix:/run/warmroute/control.sock"


class LimitSettings(_Strict):
    """Over a limit a request still goes through, unrouted and counted."""

    body_bytes: Annotated[int, Field(ge=1024, le=268_435_456)] = 524_288
    """Leading bytes of a body that are inspected: as much as `prompt_blocks` can use."""
    held_body_bytes: Annotated[int, Field(ge=0, le=1_099_511_627_776)] = 268_435_456
    """Bodies of all requests together that wait for their rest, in full duplex."""
    prompt_blocks: Annotated[int, Field(ge=1, le=65_536)] = 2048
    index_blocks_per_endpoint: Annotated[int, Field(ge=16, le=100_000_000)] = 200_000
    ext_proc_streams: Annotated[int, Field(ge=1, le=1_000_000)] = 20_000
    xds_streams: Annotated[int, Field(ge=1, le=100_000)] = 2000
    node_groups: Annotated[int, Field(ge=1, le=100_000)] = 64
    """Places of Envoys that get weights by distance; Envoys beyond that get them without."""
    metrics_page_bytes: Annotated[int, Field(ge=1024, le=268_435_456)] = 1_048_576
    endpoints: Annotated[int, Field(ge=1, le=100_000)] = 5000
    decisions: Annotated[int, Field(ge=1, le=1_000_000)] = 1024
    """Newest picks, and newest changes of weights, that are remembered to be explained."""
    drain_seconds: Seconds = 5.0


class Settings(_Strict):
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
    limits: LimitSettings = LimitSettings()
    tls: TlsSettings = TlsSettings()
    connections: ConnectionSettings = ConnectionSettings()
    upgrades: UpgradeSettings = UpgradeSettings()
    allow_plaintext: bool = False
    """Addresses beyond Unix sockets and loopback are refused without it or `tls`."""

    def exposed(self) -> list[tuple[str, str]]:
        """Return path and value of each service address that other hosts could reach."""
        addresses = [
            ("xds.address", self.xds.address),
            ("ext_proc.address", self.ext_proc.address),
            ("control.address", self.control.address),
            ("admin.address", self.admin.address),
            ("admin.ext_proc_address", self.admin.ext_proc_address),
        ]
        return [(path, address) for path, address in addresses if address and not is_local(address)]
