"""What gRPC's own xDS client needs besides the pools' clusters: an API listener per pool and a bootstrap.

A client of `xds:///POOL` asks for the listener `grpc/POOL`, follows its inline routes to the cluster POOL,
and balances by the last policy of that cluster's list, the only one there that gRPC knows.

Names
    `grpc/` keeps these listeners apart from Envoys' own, whose names have no slash. Only clients
    that request them by name get them: an Envoy takes all listeners, and logs each of this kind as unusable.

Source: gRFC A27 (resources), A31 and A42 (hash policies, ring_hash), as grpcio 1.85 follows them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from envoy_data_plane.envoy.config.cluster.v3 import LoadBalancingPolicyPolicy
from envoy_data_plane.envoy.config.listener.v3 import ApiListener, Listener
from envoy_data_plane.envoy.config.route.v3 import (
    Route,
    RouteAction,
    RouteActionHashPolicy,
    RouteActionHashPolicyHeader,
    RouteConfiguration,
    RouteMatch,
    VirtualHost,
)
from envoy_data_plane.envoy.extensions.filters.http.router.v3 import Router
from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager.v3 import (
    HttpConnectionManager,
    HttpFilter,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.ring_hash.v3 import RingHash

from fleet.endpoint import Locality
from fleet.names import GRPC_LISTENER_PREFIX, TYPE_LISTENER
from fleet.settings import ListenerSettings
from xds_server.envoy.extension import extension, packed
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from fleet.settings import PeerTlsSettings, PoolSettings, Settings

_RING_ENTRIES: Final = 4096
"""What gRPC's clients allow a ring by default. A share of s is then off by about sqrt(s / 4096)."""


def api_listeners(settings: Settings) -> list[Resource]:
    """One API listener a pool, named `grpc/POOL`."""
    made = [_api_listener(pool, settings) for pool in settings.pools]
    return [Resource.of(listener.name, TYPE_LISTENER, bytes(listener)) for listener in made]


def weighted_policy() -> LoadBalancingPolicyPolicy:
    """The policy for clients that do not know `override_host`: of those gRPC has, the one with EDS weights.

    gRPC's round_robin ignores the weights of endpoints; its wrr_locality knows only those of localities.
    """
    size = _RING_ENTRIES
    ring = RingHash(minimum_ring_size=size, maximum_ring_size=size)
    return LoadBalancingPolicyPolicy(
        typed_extension_config=extension("envoy.load_balancing_policies.ring_hash", ring)
    )


def grpc_bootstrap(
    *,
    ads_address: str,
    node_id: str,
    node_cluster: str,
    locality: Locality = Locality(),  # noqa: B008 - frozen
    tls: PeerTlsSettings | None = None,
) -> dict[str, Any]:
    """Build a bootstrap of gRPC as plain data, ready to be JSON: for `GRPC_XDS_BOOTSTRAP`.

    Args:
        ads_address: xds_server, as `unix:/path` or `host:port`.
        node_id: this client's own name.
        node_cluster: what the clients of one use have in common.
        locality: where this client stands; left out when empty.
        tls: the files with which to speak TLS; None: plaintext.
    """
    node: dict[str, Any] = {"id": node_id, "cluster": node_cluster}
    if locality != Locality():
        node["locality"] = asdict(locality)
    server = {
        "server_uri": ads_address,
        "channel_creds": [_channel_credentials(tls)],
        "server_features": ["xds_v3"],
    }
    return {
        "xds_servers": [server],
        "node": node,
        "client_default_listener_resource_name_template": f"{GRPC_LISTENER_PREFIX}%s",
    }


def _channel_credentials(tls: PeerTlsSettings | None) -> dict[str, Any]:
    """Source: gRFC A65, mTLS credentials in the xDS bootstrap file."""
    if tls is None:
        return {"type": "insecure"}
    files = {
        "certificate_file": tls.certificate_file,
        "private_key_file": tls.key_file,
        "ca_certificate_file": tls.ca_file,
    }
    return {"type": "tls", "config": files}


def _api_listener(pool: PoolSettings, settings: Settings) -> Listener:
    name = f"{GRPC_LISTENER_PREFIX}{pool.name}"
    host = VirtualHost(name=pool.name, domains=["*"], routes=[_route(pool, settings)])
    manager = HttpConnectionManager(
        stat_prefix=name,
        # Inline, so that no client of routes but this one ever sees them.
        route_config=RouteConfiguration(name=name, virtual_hosts=[host]),
        # gRPC refuses a chain with a filter that it does not know, as ext_proc is.
        http_filters=[HttpFilter(name="envoy.filters.http.router", typed_config=packed(Router()))],
    )
    return Listener(name=name, api_listener=ApiListener(api_listener=packed(manager)))


def _route(pool: PoolSettings, settings: Settings) -> Route:
    """No retries: gRPC itself retries requests that no engine has got, and has no finer conditions."""
    return Route(
        name="all",
        match=RouteMatch(prefix="/"),
        route=RouteAction(
            cluster=pool.name,
            # Without such a header the hash is random for each call, which makes shares of weights.
            hash_policy=[
                RouteActionHashPolicy(header=RouteActionHashPolicyHeader(header_name=header))
                for header in _session_headers(pool, settings)
            ],
        ),
    )


def _session_headers(pool: PoolSettings, settings: Settings) -> list[str]:
    """The session headers of the pool's listeners, so that sessions are the same with and without Envoy."""
    headers = {listener.session_header for listener in settings.listeners if pool.name in listener.pools}
    return sorted(headers) or [str(ListenerSettings.model_fields["session_header"].default)]
