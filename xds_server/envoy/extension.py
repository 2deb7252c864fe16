"""Small pieces of Envoy configuration that listeners, routes and clusters share."""

from __future__ import annotations

import ipaddress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.core.v3 import (
    Address,
    AggregatedConfigSource,
    ApiVersion,
    ConfigSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    Pipe,
    SocketAddress,
    TypedExtensionConfig,
)
from envoy_data_plane.google.protobuf import Any

from fleet.names import LEADING_FILTER, METADATA_NAMESPACE
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    import betterproto2

UNLIMITED: Final = 1_000_000
"""For circuit breakers: streams last as long as requests, so Envoy's default of 1,024 overflows."""


def packed(message: betterproto2.Message) -> Any:
    """Pack a message with its type URL."""
    return Any.pack(message)


def extension(name: str, message: betterproto2.Message) -> TypedExtensionConfig:
    """Name and configuration of an Envoy extension."""
    return TypedExtensionConfig(name=name, typed_config=packed(message))


def seconds(value: float) -> timedelta:
    """A duration in Envoy's configuration."""
    return timedelta(seconds=value)


def over_ads(first_fetch_seconds: float | None = None) -> ConfigSource:
    """The configuration source of all resources; the first may take as long as this (None: 15 s)."""
    return ConfigSource(
        ads=AggregatedConfigSource(),
        resource_api_version=ApiVersion.V3,
        initial_fetch_timeout=None if first_fetch_seconds is None else seconds(first_fetch_seconds),
    )


def address_of(address: str) -> Address:
    """Envoy's form of `unix:/path` or `host:port`."""
    if address.startswith("unix:"):
        return Address(pipe=Pipe(path=address.removeprefix("unix:")))
    host, port = split_host_port(address)
    return Address(socket_address=SocketAddress(address=host, port_value=port))


def discovery_type(address: str) -> str:
    """Name of the discovery type of a cluster at `unix:/path` or `host:port`: a host name needs DNS."""
    if address.startswith("unix:"):
        return "STATIC"
    try:
        ipaddress.ip_address(split_host_port(address)[0])
    except ValueError:
        return "STRICT_DNS"
    return "STATIC"


def metadata(key: str) -> str:
    """The format string of a key of ext_proc's metadata."""
    return f"%DYNAMIC_METADATA({METADATA_NAMESPACE}:{key})%"


def leading_metadata(key: str) -> str:
    """The same on routes that show ext_proc the leading part of a body."""
    return f"%DYNAMIC_METADATA({LEADING_FILTER}:{METADATA_NAMESPACE}:{key})%"


def overwriting(name: str, value: str) -> HeaderValueOption:
    """A header that replaces one of its name."""
    return HeaderValueOption(
        header=HeaderValue(key=name, value=value),
        append_action=HeaderValueOptionHeaderAppendAction.OVERWRITE_IF_EXISTS_OR_ADD,
    )
