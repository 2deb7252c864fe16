"""WebSockets and the HTTP/1.1 fallback as Envoy configuration: docs/upgrades.md has the decision table.

Routes decide all of it, from headers alone, so that it holds whether ext_proc is there or not. ext_proc
sees the headers of handshakes and of what falls back, names an endpoint, and never sees a frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutation, HeaderMutationRemoveOnMatch
from envoy_data_plane.envoy.config.core.v3 import (
    DataSource,
    HeaderValue,
    HeaderValueOption,
    HeaderValueOptionHeaderAppendAction,
    Http2ProtocolOptions,
)
from envoy_data_plane.envoy.config.route.v3 import (
    DirectResponseAction,
    HeaderMatcher,
    Route,
    RouteAction,
    RouteActionUpgradeConfig,
    RouteMatch,
)
from envoy_data_plane.envoy.extensions.filters.http.buffer.v3 import BufferPerRoute
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExtProcOverrides,
    ExtProcPerRoute,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutation as HeaderMutationFilter,
)
from envoy_data_plane.envoy.extensions.filters.http.header_mutation.v3 import (
    HeaderMutationPerRoute,
    Mutations,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher

from fleet.names import BUFFER_FILTER, EXT_PROC_FILTER, HEADER_PROTOCOL, HTTP1_SUFFIX, WEBSOCKET_ROUTE
from xds_server.envoy import limits
from xds_server.envoy.extension import overwriting, packed, seconds
from xds_server.envoy.fallback import all_but

if TYPE_CHECKING:
    from collections.abc import Iterator

    from envoy_data_plane.google.protobuf import Any

    from fleet.settings import ListenerSettings, PoolSettings, Settings
    from xds_server.http2.protocol_choice import ProtocolChoice

FALLBACK_FILTER: Final = "warmroute.fallback"
WEBSOCKET: Final = "websocket"

_KEY: Final = r"[A-Za-z0-9+/]{22}=="
"""16 bytes in base64; the bits past the last byte may be anything. Source: RFC 6455, 4.1 and 4.2.1."""
_NO_KEYS: Final = (
    r"\C{0,23}|\C{25,}",
    r"\C*[^A-Za-z0-9+/=]\C*|\C*=[^=]\C*|\C*===|\C*[^=]=?",
)
"""Values of another length, and non-keys of 24 bytes. `.` would make larger programs than `\\C`."""
_KEY_OF_HTTP2: Final = "d2FybXJvdXRlLWhhbmRzaA=="
"""RFC 8441 has no keys, but HTTP/1.1 engines want one. No secret: it only protects caches."""
_VERSION: Final = "13"
_NO_VERSIONS: Final = (r"|[^1]\C*|1|1[^3]\C*|13\C+",)
_HTTP2: Final = "HTTP/2"
_BAD_REQUEST: Final = 400


def http1_cluster(pool: PoolSettings) -> str | None:
    """The cluster of a pool's HTTP/1.1 requests; None: there is none."""
    if pool.protocol == "grpc":
        return None
    return pool.name if pool.protocol == "http1" else f"{pool.name}{HTTP1_SUFFIX}"


def cluster_of(pool: PoolSettings, over_http1: frozenset[str]) -> str:
    """The cluster of a pool's requests, if those of the named pools go by HTTP/1.1."""
    return (http1_cluster(pool) if pool.name in over_http1 else None) or pool.name


def offered(pool: PoolSettings, settings: Settings) -> bool:
    """Whether the pool has WebSocket routes."""
    return bool(settings.upgrades.paths) and http1_cluster(pool) is not None


def of_upgrades(
    listener: ListenerSettings,
    pool: PoolSettings,
    settings: Settings,
    protocols: ProtocolChoice,
    action: RouteAction,
) -> list[Route]:
    """The routes that stand before all others: handshakes, and what else comes on their paths.

    `action` is that of ordinary requests; it is not changed.
    """
    if http1_cluster(pool) is None:
        return []
    upgraded, plain = cluster_of(pool, protocols.upgrades), cluster_of(pool, protocols.fallback)
    made: list[Route] = []
    for path in settings.upgrades.paths:
        if settings.upgrades.check_handshakes:
            made += _refusals(path)
        made.append(_websocket(path, settings, _with(action, upgraded)))
        if settings.upgrades.fallback.enabled:
            made.append(_fallback(path, listener, settings, _with(action, plain)))
    return made


def elsewhere(
    pool: PoolSettings, settings: Settings, protocols: ProtocolChoice, action: RouteAction
) -> RouteAction:
    """What becomes of upgrades on other paths."""
    made = _with(action, cluster_of(pool, protocols.upgrades))
    if http1_cluster(pool) is None or settings.upgrades.elsewhere == "refuse":
        made.upgrade_configs = [RouteActionUpgradeConfig(upgrade_type=WEBSOCKET, enabled=False)]
    return made


def filters(settings: Settings) -> list[HttpFilter]:
    """The filter that keeps headers back; off except where a route switches it on."""
    if not (settings.upgrades.paths and settings.upgrades.fallback.enabled):
        return []
    return [HttpFilter(name=FALLBACK_FILTER, disabled=True, typed_config=packed(HeaderMutationFilter()))]


def early_mutations(settings: Settings) -> list[HeaderMutation]:
    """Routes cannot ask for a request's protocol: it stands in a header until one is chosen.

    A handshake over HTTP/2 has no key, and one over HTTP/1.1 must have one.
    """
    if not _needs_protocol_header(settings):
        return []
    return [HeaderMutation(append=overwriting(HEADER_PROTOCOL, "%PROTOCOL%"))]


def http2_options(settings: Settings) -> Http2ProtocolOptions | None:
    """A listener's options for HTTP/2 clients; None: Envoy's defaults."""
    upgrades = settings.upgrades
    return Http2ProtocolOptions(allow_connect=True) if upgrades.paths and upgrades.extended_connect else None


def removed_headers(settings: Settings) -> list[str]:
    """Headers that are removed before the request goes to an engine."""
    return [HEADER_PROTOCOL] if _needs_protocol_header(settings) else []


def untouched() -> dict[str, Any]:
    """Neither ext_proc nor the buffer: a filter that waits for the body of an upgrade waits for ever."""
    return {EXT_PROC_FILTER: packed(ExtProcPerRoute(disabled=True)), BUFFER_FILTER: _unbuffered()}


def _unbuffered() -> Any:
    return packed(BufferPerRoute(disabled=True))


def _needs_protocol_header(settings: Settings) -> bool:
    upgrades = settings.upgrades
    return bool(upgrades.paths) and upgrades.check_handshakes and upgrades.extended_connect


def _with(action: RouteAction, cluster: str) -> RouteAction:
    copied = RouteAction.parse(bytes(action))
    copied.cluster = cluster
    return copied


def _match(path: str, *headers: HeaderMatcher) -> RouteMatch:
    if path.endswith("/"):
        return RouteMatch(prefix=path, headers=list(headers))
    return RouteMatch(path=path, headers=list(headers))


def _is_websocket() -> HeaderMatcher:
    return HeaderMatcher(name="upgrade", string_match=StringMatcher(exact=WEBSOCKET, ignore_case=True))


def _not(name: str, matcher: StringMatcher) -> HeaderMatcher:
    """Absent counts as empty, so it is refused too."""
    return HeaderMatcher(
        name=name, string_match=matcher, invert_match=True, treat_missing_header_as_empty=True
    )


def _refusals(path: str) -> Iterator[Route]:
    version = StringMatcher(exact=_VERSION)
    for wrong in _wrong("sec-websocket-version", version, _NO_VERSIONS):
        yield Route(
            name="websocket-version",
            match=_match(path, _is_websocket(), wrong),
            direct_response=_refusal("Sec-WebSocket-Version must be 13"),
            response_headers_to_add=[overwriting("sec-websocket-version", _VERSION)],
            typed_per_filter_config=untouched(),
        )
    key = StringMatcher(safe_regex=RegexMatcher(regex=_KEY))
    over_http1 = _not(HEADER_PROTOCOL, StringMatcher(exact=_HTTP2))
    for wrong in _wrong("sec-websocket-key", key, _NO_KEYS):
        yield Route(
            name="websocket-key",
            match=_match(path, _is_websocket(), wrong, over_http1),
            direct_response=_refusal("Sec-WebSocket-Key must be 16 bytes in base64"),
            typed_per_filter_config=untouched(),
        )


def _wrong(name: str, right: StringMatcher, others: tuple[str, ...]) -> Iterator[HeaderMatcher]:
    """No value is right, or one of several is not.

    Envoy matches each value of a header on its own and is content with one, so that an inverted match says
    nothing of the others.
    """
    yield _not(name, right)
    for regex in others:
        yield HeaderMatcher(name=name, string_match=StringMatcher(safe_regex=RegexMatcher(regex=regex)))


def _refusal(text: str) -> DirectResponseAction:
    return DirectResponseAction(
        status=_BAD_REQUEST, body=DataSource(inline_string=f"malformed WebSocket handshake: {text}\n")
    )


def _websocket(path: str, settings: Settings, action: RouteAction) -> Route:
    upgrades = settings.upgrades
    # Envoy ends this with the answer to the handshake, so it is no limit of the WebSocket itself.
    action.timeout = seconds(upgrades.handshake_seconds)
    action.idle_timeout = seconds(upgrades.idle_seconds)
    action.upgrade_configs = [RouteActionUpgradeConfig(upgrade_type=WEBSOCKET)]
    action.hedge_policy = None
    action.retry_policy = limits.retried_after(action.retry_policy, upgrades.retry_statuses)
    keys = []
    if upgrades.extended_connect:
        option = HeaderValueOption(
            header=HeaderValue(key="sec-websocket-key", value=_KEY_OF_HTTP2),
            append_action=HeaderValueOptionHeaderAppendAction.ADD_IF_ABSENT,
        )
        keys.append(option)
    return Route(
        name=WEBSOCKET_ROUTE,
        match=_match(path, _is_websocket()),
        route=action,
        request_headers_to_add=keys,
        typed_per_filter_config=headers_only(),
    )


def _fallback(path: str, listener: ListenerSettings, settings: Settings, action: RouteAction) -> Route:
    kept = settings.upgrades.passing(listener.session_header)
    removals = [
        HeaderMutation(
            remove_on_match=HeaderMutationRemoveOnMatch(
                key_matcher=StringMatcher(safe_regex=RegexMatcher(regex=regex))
            )
        )
        for regex in all_but(kept)
    ]
    per_route = HeaderMutationPerRoute(mutations=Mutations(request_mutations=removals))
    return Route(
        name="fallback",
        match=_match(
            path,
            HeaderMatcher(name="upgrade", present_match=True, invert_match=True),
            # OPTIONS names headers that the fallback would remove.
            HeaderMatcher(name=":method", string_match=StringMatcher(exact="OPTIONS"), invert_match=True),
        ),
        route=action,
        typed_per_filter_config={**headers_only(), FALLBACK_FILTER: packed(per_route)},
    )


def headers_only() -> dict[str, Any]:
    """ext_proc gets the headers alone; the buffer is off."""
    skip, send = ProcessingModeHeaderSendMode.SKIP, ProcessingModeHeaderSendMode.SEND
    none = ProcessingModeBodySendMode.NONE
    mode = ProcessingMode(
        request_header_mode=send,
        response_header_mode=skip,
        request_body_mode=none,
        response_body_mode=none,
        request_trailer_mode=skip,
        response_trailer_mode=skip,
    )
    overrides = ExtProcPerRoute(overrides=ExtProcOverrides(processing_mode=mode))
    return {EXT_PROC_FILTER: packed(overrides), BUFFER_FILTER: _unbuffered()}
