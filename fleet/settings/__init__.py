"""The settings: one strict YAML file, checked as a whole before anything starts."""

from fleet.settings.load import load_endpoints, load_settings, parse_settings
from fleet.settings.model import (
    CostSettings,
    DiscoverySettings,
    DnsDiscoverySettings,
    EndpointSettings,
    ExtProcSettings,
    FileDiscoverySettings,
    HeadroomSettings,
    JoiningSettings,
    LimitSettings,
    ListenerSettings,
    PoolSettings,
    Settings,
    SignalSettings,
    StabiliserSettings,
    WeightSettings,
    XdsSettings,
)
from fleet.settings.topology import LinkSettings, TopologySettings

__all__ = [
    "CostSettings",
    "DiscoverySettings",
    "DnsDiscoverySettings",
    "EndpointSettings",
    "ExtProcSettings",
    "FileDiscoverySettings",
    "HeadroomSettings",
    "JoiningSettings",
    "LimitSettings",
    "LinkSettings",
    "ListenerSettings",
    "PoolSettings",
    "Settings",
    "SignalSettings",
    "StabiliserSettings",
    "TopologySettings",
    "WeightSettings",
    "XdsSettings",
    "load_endpoints",
    "load_settings",
    "parse_settings",
]
