"""Listeners: the HTTP connection manager with ext_proc, the buffer that waits for it, and the router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.accesslog.v3 import AccessLog
from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation, HeaderMutationRules
from envoy_data_plane.envoy.config.core.v3 import (
    ApiVersion,
    GrpcService,
    GrpcServiceEnvoyGrpc,
    Http1ProtocolOptions,
)
from envoy_data_plane.envoy.config.listener.v3 import Filter, FilterChain, Listener
from envoy_data_plane.envoy.extensions.access_loggers.grpc.v3 import (
    CommonGrpcAccessLogConfig,
    HttpGrpcAccessLogConfig,
)
from envoy_data_plane.envoy.extensions.filters.http.buffer.v3 import Buffer
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExternalProcessorRouteCacheAction,
    MetadataOptions,
    MetadataOptionsMetadataNamespaces,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpConnectionManagerHcmAccessLogOptions,
    HttpConnectionManagerUpgradeConfig,
    HttpFilter,
    Rds,
)
from envoy_data_plane.envoy.extensions.http.early_header_mutation.header_mutation.v3 import (
    HeaderMutation as EarlyHeaderMutation,
)
from envoy_data_plane.envoy.type.tracing.v3 import CustomTag, CustomTagHeader

from fleet.models import chooses, has_aliases
from fleet.names import (
    ACCESS_LOG_NAME,
    ADS_CLUSTER,
    BUFFER_FILTER,
    CROWDED_ATTRIBUTE,
    DESTINATION_NAMESPACE,
    EXT_PROC_CLUSTER,
    EXT_PROC_FILTER,
    LISTENER_ATTRIBUTE,
    METADATA_NAMESPACE,
    REMOVED_REQUEST_HEADERS,
    SESSION_TAG,
    TYPE_LISTENER,
    session_attribute,
)
from xds_server.envoy import leading, limits, models, stored, tls, upgrades
from xds_server.envoy.closed_paths import closed
from xds_server.envoy.extension import address_of, extension, over_ads, packed, seconds
from xds_server.envoy.local_replies import local_replies
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from fleet.settings import ListenerSettings, Settings

_ROUTER_FILTER: Final = "envoy.filters.http.router"
_BODY_BUFFER_BYTES: Final = 1024 * 1024
"""Envoy's own default: what is kept of a body for a retry, and about the most that ext_proc gets of one."""

_LOG_FLUSH_SECONDS: Final = 0.25
_LOG_BUFFER_BYTES: Final = 16_384
"""Of each of Envoy's threads, beyond what a stream's flow-control window takes: while xds_server is away or
frozen, entries past it are dropped and requests go on."""
_LOG_UPGRADES: Final = HttpConnectionManagerHcmAccessLogOptions(
    flush_log_on_tunnel_successfully_established=True
)


def listeners(settings: Settings) -> list[Resource]:
    """Every listener of the settings."""
    made = [_listener(listener, settings) for listener in settings.listeners]
    return [Resource.of(listener.name, TYPE_LISTENER, bytes(listener)) for listener in made]


def _listener(listener: ListenerSettings, settings: Settings) -> Listener:
    manager = _connection_manager(listener, settings)
    return Listener(
        name=listener.name,
        address=address_of(listener.address),
        # Any ordinary body fits, so ext_proc gets it whole and a retry can send it again. Of a longer one,
        # Envoy keeps as much behind the leading part as it keeps without ext_proc.
        per_connection_buffer_limit_bytes=max(_BODY_BUFFER_BYTES, _most_body_bytes(listener, settings))
        + leading.leading_bytes(listener, settings),
        filter_chains=[
            FilterChain(
                transport_socket=tls.downstream(listener),
                filters=[
                    Filter(name="envoy.filters.network.http_connection_manager", typed_config=packed(manager))
                ],
            )
        ],
    )


def _connection_manager(listener: ListenerSettings, settings: Settings) -> HttpConnectionManager:
    """Request timeouts and the stream's duration stay off, as Envoy's defaults have them."""
    return HttpConnectionManager(
        stat_prefix=listener.name,
        rds=Rds(config_source=over_ads(), route_config_name=listener.name),
        # Engines decode paths before they match them, so closed paths could be spelt otherwise.
        normalize_path=True if closed(listener) else None,
        early_header_mutation_extensions=[
            extension(
                "envoy.http.early_header_mutation.header_mutation",
                EarlyHeaderMutation(
                    mutations=[
                        *(HeaderMutation(remove=name) for name in REMOVED_REQUEST_HEADERS),
                        *upgrades.early_mutations(settings),
                    ]
                ),
            )
        ],
        http_filters=[
            *models.choosing_filters(listener),
            *leading.filters(listener, settings),
            HttpFilter(name=EXT_PROC_FILTER, typed_config=packed(_ext_proc(listener, settings))),
            # It holds the headers back until the body is there, and with it the pick. Only routes that
            # match a content-length below its limit have it, so it never answers 413.
            HttpFilter(
                name=BUFFER_FILTER,
                typed_config=packed(Buffer(max_request_bytes=_most_body_bytes(listener, settings))),
            ),
            *models.length_filters(listener, settings),
            *stored.filters(listener.name, settings),
            *upgrades.filters(settings),
            *limits.filters(listener, settings),
            HttpFilter(name=_ROUTER_FILTER, typed_config=packed(Router())),
        ],
        upgrade_configs=[HttpConnectionManagerUpgradeConfig(upgrade_type=upgrades.WEBSOCKET)],
        # Old health checkers, `ab` and nginx without `proxy_http_version`: answered without chunks.
        http_protocol_options=Http1ProtocolOptions(accept_http_10=True),
        http2_protocol_options=upgrades.http2_options(settings),
        access_log=[_access_log(listener)] if settings.signals.access_log else [],
        # A WebSocket may last for days; its begin already shows that the engine works.
        access_log_options=_LOG_UPGRADES if settings.signals.access_log else None,
        local_reply_config=local_replies(),
        stream_idle_timeout=seconds(listener.stream_idle_timeout_seconds),
    )


def _most_body_bytes(listener: ListenerSettings, settings: Settings) -> int:
    """The most that a body on the way through ext_proc may have, with a longer name of its model."""
    growth = models.MOST_GROWTH_BYTES if has_aliases(listener, settings) else 0
    return listener.large_body_bytes + 1 + growth


def _ext_proc(listener: ListenerSettings, settings: Settings) -> ExternalProcessor:
    return ExternalProcessor(
        grpc_service=GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=EXT_PROC_CLUSTER)),
        failure_mode_allow=True,
        message_timeout=seconds(settings.ext_proc.message_timeout_seconds),
        processing_mode=ProcessingMode(
            request_header_mode=ProcessingModeHeaderSendMode.SKIP,
            response_header_mode=ProcessingModeHeaderSendMode.SKIP,
            request_body_mode=ProcessingModeBodySendMode.BUFFERED,
            response_body_mode=ProcessingModeBodySendMode.NONE,
            request_trailer_mode=ProcessingModeHeaderSendMode.SKIP,
            response_trailer_mode=ProcessingModeHeaderSendMode.SKIP,
        ),
        request_attributes=request_attributes(listener, settings),
        metadata_options=MetadataOptions(
            receiving_namespaces=MetadataOptionsMetadataNamespaces(
                untyped=[DESTINATION_NAMESPACE, METADATA_NAMESPACE]
            )
        ),
        # ext_proc speaks in metadata only: it can neither change a request nor answer in its place.
        mutation_rules=limits.mutation_rules(listener, settings, HeaderMutationRules(disallow_all=True)),
        disable_immediate_response=not limits.may_answer(listener, settings),
        route_cache_action=(
            ExternalProcessorRouteCacheAction.RETAIN
            if len(listener.pools) == 1
            else ExternalProcessorRouteCacheAction.DEFAULT
        ),
        stat_prefix=listener.name,
    )


def _access_log(listener: ListenerSettings) -> AccessLog:
    """The access log: finished requests, in batches, to the xds_server that configures this Envoy."""
    session = CustomTag(tag=SESSION_TAG, request_header=CustomTagHeader(name=listener.session_header))
    return AccessLog(
        name="envoy.access_loggers.http_grpc",
        typed_config=packed(
            HttpGrpcAccessLogConfig(
                common_config=CommonGrpcAccessLogConfig(
                    log_name=ACCESS_LOG_NAME,
                    grpc_service=GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=ADS_CLUSTER)),
                    transport_api_version=ApiVersion.V3,
                    buffer_flush_interval=seconds(_LOG_FLUSH_SECONDS),
                    buffer_size_bytes=_LOG_BUFFER_BYTES,
                    custom_tags=[session],
                )
            )
        ),
    )


def request_attributes(listener: ListenerSettings, settings: Settings) -> list[str]:
    """The headers of a request that come with its body; an absent header is absent there too."""
    return [
        "request.path",
        "request.id",
        session_attribute((listener.session_header, *settings.ext_proc.pick.sessions.every_header)),
        "request.headers['content-type']",
        "request.headers['content-encoding']",
        "request.headers['traceparent']",
        "xds.cluster_name",
        CROWDED_ATTRIBUTE,
        *_of_models(listener, settings),
        *(f"request.headers['{name}']" for name in settings.ext_proc.pick.headers),
        *(f"request.headers['{name}']" for name in settings.ext_proc.idempotency.headers),
    ]


def _of_models(listener: ListenerSettings, settings: Settings) -> list[str]:
    if not chooses(listener, settings):
        return []
    header = listener.model_header
    return [LISTENER_ATTRIBUTE, *([f"request.headers['{header}']"] if header else [])]
