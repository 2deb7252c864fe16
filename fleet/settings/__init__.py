"""The settings: one strict YAML file, checked as a whole before anything starts."""

from fleet.settings.idempotency import IdempotencySettings
from fleet.settings.limits import LimitSettings
from fleet.settings.listeners import ListenerSettings
from fleet.settings.load import load_endpoints, load_settings, located, parse_settings
from fleet.settings.model import Settings
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
from fleet.settings.sla import SlaSettings
from fleet.settings.tls import (
    EnvoyTlsSettings,
    PeerTlsSettings,
    RoleSettings,
    ServerTlsSettings,
)
from fleet.settings.topology import LinkSettings, TopologySettings
from fleet.settings.upgrades import Http2Settings, UpgradeSettings
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

__all__ = [
    "BalancedSettings",
    "DiscoverySettings",
    "DnsDiscoverySettings",
    "EndpointSettings",
    "EnvoyTlsSettings",
    "FaultSettings",
    "FileDiscoverySettings",
    "HeadroomSettings",
    "Http2Settings",
    "IdempotencySettings",
    "JoiningSettings",
    "LimitSettings",
    "LinkSettings",
    "ListenerSettings",
    "P99Settings",
    "PeerTlsSettings",
    "PoolSettings",
    "PredictiveSettings",
    "RoleSettings",
    "ServerTlsSettings",
    "Settings",
    "SignalSettings",
    "SilentZoneSettings",
    "SkewSettings",
    "SlaSettings",
    "StabiliserSettings",
    "TopologySettings",
    "UpgradeSettings",
    "WeightSettings",
    "load_endpoints",
    "load_settings",
    "located",
    "parse_settings",
]
