"""The settings: one strict YAML file, checked as a whole before anything starts."""

from fleet.settings.load import load_settings, parse_settings
from fleet.settings.model import (
    CostSettings,
    EndpointSettings,
    ExtProcSettings,
    HeadroomSettings,
    LimitSettings,
    ListenerSettings,
    PoolSettings,
    Settings,
    SignalSettings,
    StabiliserSettings,
    WeightSettings,
    XdsSettings,
)

__all__ = [
    "CostSettings",
    "EndpointSettings",
    "ExtProcSettings",
    "HeadroomSettings",
    "LimitSettings",
    "ListenerSettings",
    "PoolSettings",
    "Settings",
    "SignalSettings",
    "StabiliserSettings",
    "WeightSettings",
    "XdsSettings",
    "load_settings",
    "parse_settings",
]
