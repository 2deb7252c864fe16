"""HTTP/2 options of clusters: pings that the peer permits, and streams that leave room for control frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envoy_data_plane.envoy.config.core.v3 import Http2ProtocolOptions, KeepaliveSettings

from xds_server.envoy.extension import seconds

if TYPE_CHECKING:
    from fleet.settings import Settings
    from fleet.settings.connections import ConnectionSettings


def ext_proc_http2(settings: Settings) -> Http2ProtocolOptions:
    """Options of Envoy's connections to ext_proc's workers."""
    connections = settings.connections
    return Http2ProtocolOptions(
        max_concurrent_streams=min(connections.ext_proc_streams, settings.limits.ext_proc_streams),
        connection_keepalive=_pings(connections, connections.ping_seconds),
    )


def engine_http2(connections: ConnectionSettings) -> Http2ProtocolOptions:
    """Options of Envoy's HTTP/2 connections to engines: pings only if the settings permit them."""
    if connections.engine_ping_seconds is None:
        return Http2ProtocolOptions()
    return Http2ProtocolOptions(connection_keepalive=_pings(connections, connections.engine_ping_seconds))


def _pings(connections: ConnectionSettings, interval_seconds: float) -> KeepaliveSettings:
    return KeepaliveSettings(
        interval=seconds(interval_seconds), timeout=seconds(connections.ping_timeout_seconds)
    )
