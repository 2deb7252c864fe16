"""Protocols of clusters' connections: HTTP/1.1, HTTP/2 or by ALPN, with the pings that the peer permits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.core.v3 import (
    HealthCheckTlsOptions,
    Http1ProtocolOptions,
    Http2ProtocolOptions,
    HttpProtocolOptions,
    KeepaliveSettings,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions as UpstreamProtocolOptions,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptionsAutoHttpConfig,
    HttpProtocolOptionsExplicitHttpConfig,
)
from envoy_data_plane.envoy.type.v3 import CodecClientType

from xds_server.envoy.extension import seconds

if TYPE_CHECKING:
    from envoy_data_plane.envoy.config.core.v3 import HealthCheck

    from fleet.settings import PoolSettings, Settings
    from fleet.settings.connections import ConnectionSettings


@dataclass(frozen=True, slots=True)
class Transport:
    """One protocol of connections to engines."""

    alpn: tuple[str, ...]
    """The ALPN protocols of TLS connections."""
    probed_over_http2: bool

    def options(self, pool: PoolSettings, connections: ConnectionSettings) -> UpstreamProtocolOptions:
        """The cluster's protocol, with the pool's limit of unused connections and permitted pings."""
        made = UpstreamProtocolOptions(
            common_http_protocol_options=HttpProtocolOptions(idle_timeout=seconds(pool.idle_timeout_seconds))
        )
        if len(self.alpn) > 1:
            made.auto_config = HttpProtocolOptionsAutoHttpConfig(
                http_protocol_options=Http1ProtocolOptions(), http2_protocol_options=engine_http2(connections)
            )
        elif self.probed_over_http2:
            made.explicit_http_config = HttpProtocolOptionsExplicitHttpConfig(
                http2_protocol_options=engine_http2(connections)
            )
        else:
            made.explicit_http_config = HttpProtocolOptionsExplicitHttpConfig(
                http_protocol_options=Http1ProtocolOptions()
            )
        return made

    def probing(self, checks: list[HealthCheck]) -> list[HealthCheck]:
        """Make Envoy's probes use it too: they have a protocol of their own."""
        for check in checks:
            if self.probed_over_http2 and check.http_health_check is not None:
                check.http_health_check.codec_client_type = CodecClientType.HTTP2
            elif len(self.alpn) > 1:
                check.tls_options = HealthCheckTlsOptions(alpn_protocols=list(HTTP1.alpn))
        return checks


HTTP1: Final = Transport(("http/1.1",), probed_over_http2=False)
HTTP2: Final = Transport(("h2",), probed_over_http2=True)
AGREED: Final = Transport(("h2", "http/1.1"), probed_over_http2=False)


def of(pool: PoolSettings) -> Transport:
    """The transport of the pool's own cluster."""
    if pool.protocol == "http1":
        return HTTP1
    return AGREED if pool.protocol == "auto" and pool.tls is not None else HTTP2


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
