"""What Warmroute is compared with: Envoy with static configuration and its own policy alone.

Timeouts, retries and circuit breakers are those that Warmroute's own configuration gives the pool, so
that the two differ only in the choice of the endpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from fleet.names import HEADER_SERVED
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.settings import ListenerSettings, PoolSettings

Policy = Literal["round_robin", "least_request"]
_UNLIMITED: Final = 1_000_000
"""The circuit breakers' thresholds: neither side may refuse a request that the engines would queue."""
_HCM: Final = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
_ROUTER: Final = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_POLICY: Final = "type.googleapis.com/envoy.extensions.load_balancing_policies"
_POLICIES: Final[Mapping[Policy, str]] = {
    "round_robin": f"{_POLICY}.round_robin.v3.RoundRobin",
    "least_request": f"{_POLICY}.least_request.v3.LeastRequest",
}
_HTTP_OPTIONS: Final = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def bootstrap(
    pool: PoolSettings, listener: ListenerSettings, policy: Policy = "round_robin"
) -> dict[str, Any]:
    """Return a whole bootstrap, as the JSON form of Envoy's configuration."""
    addresses = [endpoint.address for endpoint in pool.endpoints]
    return {
        "static_resources": {
            "listeners": [_listener(pool, listener)],
            "clusters": [_cluster(pool, addresses, policy)],
        }
    }


def _listener(pool: PoolSettings, listener: ListenerSettings) -> dict[str, Any]:
    route = {
        "cluster": pool.name,
        "timeout": "0s",
        "retry_policy": {"retry_on": pool.retry_on, "num_retries": pool.retries},
    }
    served = {"header": {"key": HEADER_SERVED, "value": "%UPSTREAM_REMOTE_ADDRESS%"}}
    hosts = [
        {
            "name": "all",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": route}],
            "response_headers_to_add": [served],
        }
    ]
    manager = {
        "@type": _HCM,
        "stat_prefix": listener.name,
        "stream_idle_timeout": f"{listener.stream_idle_timeout_seconds:g}s",
        "route_config": {"name": listener.name, "virtual_hosts": hosts},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
    }
    return {
        "name": listener.name,
        "address": _address(listener.address),
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _cluster(pool: PoolSettings, addresses: Sequence[str], policy: Policy) -> dict[str, Any]:
    thresholds = dict.fromkeys(
        ("max_connections", "max_pending_requests", "max_requests", "max_retries"), _UNLIMITED
    )
    return {
        "name": pool.name,
        "type": "STATIC",
        "connect_timeout": f"{pool.connect_timeout_seconds:g}s",
        "load_balancing_policy": {
            "policies": [
                {"typed_extension_config": {"name": policy, "typed_config": {"@type": _POLICIES[policy]}}}
            ]
        },
        "circuit_breakers": {"thresholds": [thresholds]},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _HTTP_OPTIONS,
                "common_http_protocol_options": {"idle_timeout": f"{pool.idle_timeout_seconds:g}s"},
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": pool.name,
            "endpoints": [
                {"lb_endpoints": [{"endpoint": {"address": _address(address)}} for address in addresses]}
            ],
        },
    }


def _address(address: str) -> dict[str, Any]:
    host, port = split_host_port(address)
    return {"socket_address": {"address": host, "port_value": port}}
