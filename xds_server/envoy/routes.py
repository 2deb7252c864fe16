"""Routes: they decide, from a request's headers, which parts of it ext_proc reads.

In order: paths of upgrades (the headers alone), other upgrades (nothing), JSON with an ordinary
content-length (the whole body in one message), other JSON (the leading part, by another filter), all other
requests (nothing). What ext_proc does not read goes by weights (docs/decisions/0033).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.route.v3 import (
    HeaderMatcher,
    Route,
    RouteAction,
    RouteActionHashPolicy,
    RouteActionHashPolicyHeader,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher
from envoy_data_plane.envoy.type.v3 import Int64Range

from fleet.names import (
    HEADER_ATTEMPTS,
    HEADER_ENDPOINT,
    HEADER_MATCHED,
    HEADER_REASON,
    HEADER_SERVED,
    JSON_ROUTE,
    LEADING_ROUTE,
    TYPE_ROUTE,
    UNSEEN_ROUTES,
    UPSTREAM_HEADERS,
)
from xds_server.envoy import leading, limits, models, stored, upgrades
from xds_server.envoy.closed_paths import closed_routes
from xds_server.envoy.extension import leading_metadata, metadata, overwriting, seconds
from xds_server.http2.protocol_choice import ProtocolChoice
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from envoy_data_plane.envoy.config.core.v3 import HeaderValueOption
    from envoy_data_plane.google.protobuf import Any

    from fleet.models import ModelTable
    from fleet.settings import ListenerSettings, PoolSettings, Settings

_JSON: Final = r"(?i)application/json\s*(;.*)?"
"""One whole document. NDJSON and gRPC with JSON are streams whose sender may wait for an answer to the first
part before it sends the next: buffered, both sides would wait for ever."""
NO_TABLES: Final[Mapping[str, ModelTable]] = {}
AS_CONFIGURED: Final = ProtocolChoice()
"""Pools' own protocols for all requests, for example before any probe of the engines' protocols."""
_DECISION_HEADERS: Final = (HEADER_ENDPOINT, HEADER_MATCHED, HEADER_REASON)
_REQUEST_ID: Final = overwriting("x-request-id", "%REQ(X-REQUEST-ID):256%")
"""A client finds its request by it in picks, logs and traces. Cut, unlike by Envoy's
`always_set_request_id_in_response`: a client may send an id longer than it can take back."""


def routes(
    settings: Settings,
    protocols: ProtocolChoice = AS_CONFIGURED,
    tables: Mapping[str, ModelTable] = NO_TABLES,
) -> list[Resource]:
    """One route configuration a listener; it has the listener's name.

    `protocols` says which requests of pools that speak HTTP/2 go by HTTP/1.1, `tables` has the models of
    listeners that choose by them.
    """
    return [
        Resource.of(
            listener.name,
            TYPE_ROUTE,
            _route_configuration(listener, settings, protocols, tables.get(listener.name)),
        )
        for listener in settings.listeners
    ]


def _route_configuration(
    listener: ListenerSettings, settings: Settings, protocols: ProtocolChoice, table: ModelTable | None
) -> bytes:
    pools = {pool.name: pool for pool in settings.pools}
    # The default pool's come last, for all models that have no other pool.
    others = () if table is None else listener.pools[1:]
    by_pool = {name: _routes(listener, pools[name], settings, protocols) for name in (*others, listener.pool)}
    first = closed_routes(listener)
    if table is not None:
        first += models.list_route(table)
    if others:
        of_each = [(name, route) for name, of_pool in by_pool.items() for route in of_pool]
        for name, route in of_each:
            if route.name == LEADING_ROUTE:
                first.append(models.in_leading_part(route, name))
            elif route.name in (JSON_ROUTE, stored.ROUTE):
                first.append(models.in_body(route, name))
        for name in others:
            by_pool[name] = [models.in_headers(route, name) for route in by_pool[name]]
    host = VirtualHost(
        name=listener.name,
        domains=["*"],
        routes=[*first, *chain.from_iterable(by_pool.values())],
        request_headers_to_remove=upgrades.removed_headers(settings),
        request_headers_to_add=[
            overwriting(header, metadata(key)) for header, key in sorted(UPSTREAM_HEADERS.items())
        ],
        response_headers_to_add=[_REQUEST_ID, *_decision(listener, settings)],
    )
    config = bytes(
        RouteConfiguration(
            name=listener.name,
            virtual_hosts=[host],
            max_direct_response_body_size_bytes=None if table is None else models.MOST_ANSWER_BYTES,
        )
    )
    return models.with_map(config, table) if table is not None and others else config


def _routes(
    listener: ListenerSettings, pool: PoolSettings, settings: Settings, protocols: ProtocolChoice
) -> list[Route]:
    action = _action(listener, pool, settings, protocols)
    is_json = [
        HeaderMatcher(name=":method", string_match=StringMatcher(exact="POST")),
        HeaderMatcher(name="content-type", string_match=StringMatcher(safe_regex=RegexMatcher(regex=_JSON))),
    ]
    upgrade = HeaderMatcher(name="upgrade", present_match=True)
    ordinary = HeaderMatcher(
        name="content-length", range_match=Int64Range(start=0, end=listener.large_body_bytes)
    )
    untouched = upgrades.untouched()
    return [
        *upgrades.of_upgrades(listener, pool, settings, protocols, action),
        # A filter that waits for a body would wait for ever: an upgrade's body does not end.
        _unseen(
            _route("upgrade", [upgrade], upgrades.elsewhere(pool, settings, protocols, action), untouched),
            listener,
        ),
        *stored.by_name(settings, action),
        *stored.with_answers(
            settings,
            [
                _route(JSON_ROUTE, [*is_json, ordinary], action, {}),
                _leading(_route(LEADING_ROUTE, is_json, action, untouched), listener, settings),
                _unseen(_route("content-type", is_json[:1], action, untouched), listener),
            ],
        ),
        _unseen(_route("other", [], action, untouched), listener),
    ]


def _leading(route: Route, listener: ListenerSettings, settings: Settings) -> Route:
    """Show ext_proc the leading part of bodies; its metadata comes in another place."""
    assert route.route is not None
    shown = leading.of_route(listener, settings, route.route.cluster or "")
    route.typed_per_filter_config = {**route.typed_per_filter_config, **shown}
    route.request_headers_to_add = [
        overwriting(header, leading_metadata(key)) for header, key in sorted(UPSTREAM_HEADERS.items())
    ]
    if _shows_pick(listener, settings):
        route.response_headers_to_add = [
            overwriting(name, leading_metadata(UPSTREAM_HEADERS[name])) for name in _DECISION_HEADERS
        ]
    return route


def _unseen(route: Route, listener: ListenerSettings) -> Route:
    """Tell clients why there is no pick."""
    if listener.shows_decision:
        route.response_headers_to_add = [overwriting(HEADER_REASON, UNSEEN_ROUTES[route.name])]
    return route


def _route(name: str, headers: list[HeaderMatcher], action: RouteAction, filters: dict[str, Any]) -> Route:
    return Route(
        name=name,
        match=RouteMatch(prefix="/", headers=headers),
        route=action,
        typed_per_filter_config=filters,
    )


def _action(
    listener: ListenerSettings, pool: PoolSettings, settings: Settings, protocols: ProtocolChoice
) -> RouteAction:
    sessions = [listener.session_header, *settings.ext_proc.pick.sessions.every_header]
    return RouteAction(
        cluster=upgrades.cluster_of(pool, protocols.moved),
        # 0 switches it off: a token stream may last for hours. Its silences have stream_idle_timeout.
        timeout=seconds(0),
        hash_policy=[
            RouteActionHashPolicy(header=RouteActionHashPolicyHeader(header_name=name), terminal=True)
            for name in dict.fromkeys(sessions)
        ],
        retry_policy=limits.retry_policy(pool, settings),
        hedge_policy=limits.hedge_policy(pool, settings),
    )


def _shows_pick(listener: ListenerSettings, settings: Settings) -> bool:
    pick = settings.ext_proc.pick
    # Where tenants share warmth, its amount would show a tenant what others have sent.
    return listener.shows_decision and (pick.tenants_apart or not pick.tenant_header)


def _decision(listener: ListenerSettings, settings: Settings) -> list[HeaderValueOption]:
    if not listener.shows_decision:
        return []
    names = _DECISION_HEADERS if _shows_pick(listener, settings) else ()
    return [
        *(overwriting(name, metadata(UPSTREAM_HEADERS[name])) for name in names),
        overwriting(HEADER_SERVED, "%UPSTREAM_REMOTE_ADDRESS%"),
        overwriting(HEADER_ATTEMPTS, "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"),
    ]
