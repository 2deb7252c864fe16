"""Long bodies and bodies of unknown length: ext_proc sees their leading part, and picks by it.

Envoy's ext_authz filter holds such a request until its body has ended or has the leading bytes, and asks
ext_proc once. Then the request goes on, whatever the answer, and the rest of the body passes untouched
(docs/decisions/0033).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.common.mutation_rules.v3 import HeaderMutationRules
from envoy_data_plane.envoy.config.core.v3 import ApiVersion, GrpcService, GrpcServiceEnvoyGrpc
from envoy_data_plane.envoy.extensions.filters.http.ext_authz.v3 import (
    BufferSettings,
    CheckSettings,
    ExtAuthz,
    ExtAuthzPerRoute,
)
from envoy_data_plane.envoy.extensions.filters.http.set_filter_state.v3 import Config as SetFilterState
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import HttpFilter

from fleet.names import EXT_PROC_CLUSTER, LEADING_BYTES, LEADING_CLUSTER, LEADING_FILTER, LEADING_LISTENER
from xds_server.envoy.extension import packed, seconds

if TYPE_CHECKING:
    from envoy_data_plane.google.protobuf import Any

    from fleet.settings import ListenerSettings, Settings

_REROUTE: Final = "warmroute.leading_route"
_CLEARING: Final = SetFilterState(clear_route_cache=True)
_TIMEOUTS: Final = 4
"""Of ordinary messages, for a leading part. Envoy counts the time in which it sends the message too, and may
read other long bodies meanwhile. A miss costs more here: seconds of prefill. With the default it is about the
time after which health checks leave a frozen ext_proc out."""


def leading_bytes(listener: ListenerSettings, settings: Settings) -> int:
    """Return the size of a leading part: as much as ext_proc reads, within what the listener buffers."""
    return min(listener.large_body_bytes, settings.limits.body_bytes)


def filters(listener: ListenerSettings, settings: Settings) -> list[HttpFilter]:
    """Return the filter, and behind it, with several pools, one that lets Envoy choose the route again.

    Both are off except on the routes with `of_route`.
    """
    asking = HttpFilter(
        name=LEADING_FILTER,
        disabled=True,
        typed_config=packed(
            ExtAuthz(
                transport_api_version=ApiVersion.V3,
                grpc_service=GrpcService(
                    envoy_grpc=GrpcServiceEnvoyGrpc(cluster_name=EXT_PROC_CLUSTER),
                    timeout=seconds(_TIMEOUTS * settings.ext_proc.message_timeout_seconds),
                ),
                failure_mode_allow=True,
                with_request_body=BufferSettings(
                    max_request_bytes=leading_bytes(listener, settings),
                    # Otherwise the filter answers 413 to longer bodies.
                    allow_partial_message=True,
                    pack_as_bytes=True,
                ),
                # Header values may be any bytes.
                encode_raw_headers=True,
                decoder_header_mutation_rules=HeaderMutationRules(disallow_all=True),
                stat_prefix=listener.name,
            )
        ),
    )
    if len(listener.pools) == 1:
        return [asking]
    return [asking, HttpFilter(name=_REROUTE, disabled=True, typed_config=packed(_CLEARING))]


def of_route(listener: ListenerSettings, settings: Settings, cluster: str) -> dict[str, Any]:
    """Switch the filters on for a route to a cluster."""
    extensions = {LEADING_CLUSTER: cluster, LEADING_BYTES: str(leading_bytes(listener, settings))}
    several = len(listener.pools) > 1
    if several:
        extensions[LEADING_LISTENER] = listener.name
    per_route = ExtAuthzPerRoute(check_settings=CheckSettings(context_extensions=extensions))
    return {LEADING_FILTER: packed(per_route), **({_REROUTE: packed(_CLEARING)} if several else {})}
