"""The settings: one strict YAML file, checked as a whole before anything starts."""

from fleet.settings.admin import AdminSettings
from fleet.settings.ext_proc import ExtProcSettings
from fleet.settings.idempotency import IdempotencySettings
from fleet.settings.limits import LimitSettings
from fleet.settings.listeners import ListenerSettings
from fleet.settings.load import load_endpoints, load_settings, located, parse_settings
from fleet.settings.model import Settings
from fleet.settings.picks import CostSettings, PickSettings
from fleet.settings.pools import (
    DiscoverySettings,
    DnsDiscoverySettings,
    EndpointSettings,
    FileDiscoverySettings,
    JoiningSettings,
    PoolSettings,
)
from fleet.settings.signals import SignalSettings
from fleet.settings.skew import SkewSettings
from fleet.settings.sla import HealthCheckSettings, SlaSettings
from fleet.settings.telemetry import TelemetrySettings
from fleet.settings.tls import (
    EnvoyTlsSettings,
    ListenerTlsSettings,
    PeerTlsSettings,
    PoolTlsSettings,
    RoleSettings,
    ServerTlsSettings,
    TlsSettings,
)
from fleet.settings.topology import LinkSettings, TopologySettings
from fleet.settings.upgrades import FallbackSettings, Http2Settings, Protocol, UpgradeSettings
from fleet.settings.weights import (
    BalancedSettings,
    FaultSettings,
    HeadroomSettings,
    P99Settings,
    PredictiveSettings,
    SilentZoneSettings,
    StabiliserSettings,
    WeightSettings,
)
from fleet.settings.xds import XdsSettings

__all__ = [
    "AdminSettings",
    "BalancedSettings",
    "CostSettings",
    "DiscoverySettings",
    "DnsDiscoverySettings",
    "EndpointSettings",
    "EnvoyTlsSettings",
    "ExtProcSettings",
    "FallbackSettings",
    "FaultSettings",
    "FileDiscoverySettings",
    "HeadroomSettings",
    "HealthCheckSettings",
    "Http2Settings",
    "IdempotencySettings",
    "JoiningSettings",
    "LimitSettings",
    "LinkSettings",
    "ListenerSettings",
    "ListenerTlsSettings",
    "P99Settings",
    "PeerTlsSettings",
    "PickSettings",
    "PoolSettings",
    "PoolTlsSettings",
    "PredictiveSettings",
    "Protocol",
    "RoleSettings",
    "ServerTlsSettings",
    "Settings",
    "SignalSettings",
    "SilentZoneSettings",
    "SkewSettings",
    "SlaSettings",
    "StabiliserSettings",
    "TelemetrySettings",
    "TlsSettings",
    "TopologySettings",
    "UpgradeSettings",
    "WeightSettings",
    "XdsSettings",
    "load_endpoints",
    "load_settings",
    "located",
    "parse_settings",
]
