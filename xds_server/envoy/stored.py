"""Requests for what one engine stores, as Envoy configuration: docs/decisions/0032 has the design.

Requests that name a stored response, conversation or file in their path show ext_proc their headers alone.
Of answers that may give such a name, ext_proc receives a copy of the leading bytes: in observability mode
Envoy waits for no reply and takes none, so no answer is held back or changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.core.v3 import GrpcService, GrpcServiceEnvoyGrpc
from envoy_data_plane.envoy.config.route.v3 import HeaderMatcher, Route, RouteAction, RouteMatch
from envoy_data_plane.envoy.extensions.filters.http.ext_proc.v3 import (
    ExternalProcessor,
    ExtProcOverrides,
    ExtProcPerRoute,
    ProcessingMode,
    ProcessingModeBodySendMode,
    ProcessingModeHeaderSendMode,
)
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter
from envoy_data_plane.envoy.type.matcher.v3 import RegexMatcher, StringMatcher

from fleet.names import EXT_PROC_CLUSTER, STORED_COLLECTIONS, STORED_FILTER
from xds_server.envoy.extension import packed, seconds
from xds_server.envoy.upgrades import headers_only

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fleet.settings import Settings

_COLLECTION: Final = rf"/(?:.*/)?(?:{'|'.join(STORED_COLLECTIONS)})"
_CREATION: Final = rf"{_COLLECTION}/?"
# A name has a digit; /v1/responses/compact is none.
_NAMED: Final = rf"{_COLLECTION}/[^/]*[0-9][^/]*(?:/.*)?"
ROUTE: Final = "stored"
ATTRIBUTES: Final = ("upstream.address", "response.code", "response.headers['content-encoding']")
"""What comes with an answer's leading bytes."""
_CLOSE_SECONDS: Final = 0.05
"""Between the end of an answer and that of its stream, if ext_proc has not ended it."""


def by_name(settings: Settings, action: RouteAction) -> list[Route]:
    """Return the route of requests whose path names what an engine stores."""
    if not settings.ext_proc.pick.stored_names:
        return []
    return [
        Route(
            name=ROUTE,
            match=RouteMatch(safe_regex=RegexMatcher(regex=_NAMED)),
            route=action,
            typed_per_filter_config=headers_only(),
        )
    ]


def with_answers(settings: Settings, routes: Iterable[Route]) -> Iterator[Route]:
    """Yield routes, before each of them its twin for requests whose answer may give a name."""
    post = HeaderMatcher(name=":method", string_match=StringMatcher(exact="POST"))
    for route in routes:
        if settings.ext_proc.pick.stored_names:
            twin = Route.parse(bytes(route))
            match = twin.match or RouteMatch()
            match.prefix, match.safe_regex = None, RegexMatcher(regex=_CREATION)
            match.headers.append(post)
            twin.match = match
            twin.typed_per_filter_config[STORED_FILTER] = packed(
                ExtProcPerRoute(overrides=ExtProcOverrides())
            )
            yield twin
        yield route


def filters(name: str, settings: Settings) -> list[HttpFilter]:
    """Return the filter that copies leading bytes; off except where a route switches it on."""
    if not settings.ext_proc.pick.stored_names:
        return []
    skip, none = ProcessingModeHeaderSendMode.SKIP, ProcessingModeBodySendMode.NONE
    config = ExternalProcessor(
        grpc_service=GrpcService(envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=EXT_PROC_CLUSTER)),
        failure_mode_allow=True,
        observability_mode=True,
        deferred_close_timeout=seconds(_CLOSE_SECONDS),
        processing_mode=ProcessingMode(
            request_header_mode=skip,
            response_header_mode=skip,
            request_body_mode=none,
            response_body_mode=ProcessingModeBodySendMode.STREAMED,
            request_trailer_mode=skip,
            response_trailer_mode=skip,
        ),
        response_attributes=list(ATTRIBUTES),
        disable_immediate_response=True,
        stat_prefix=name,
    )
    return [HttpFilter(name=STORED_FILTER, disabled=True, typed_config=packed(config))]
