"""Clusters: one for each pool, by EDS, and one for ext_proc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy_data_plane.envoy.config.cluster.v3 import (
    CircuitBreakers,
    CircuitBreakersThresholds,
    Cluster,
    ClusterCommonLbConfig,
    ClusterDiscoveryType,
    ClusterEdsClusterConfig,
    LoadBalancingPolicy,
    LoadBalancingPolicyPolicy,
    OutlierDetection,
    UpstreamConnectionOptions,
)
from envoy_data_plane.envoy.config.core.v3 import (
    HealthCheck,
    HealthCheckGrpcHealthCheck,
    TcpKeepalive,
)
from envoy_data_plane.envoy.config.endpoint.v3 import (
    ClusterLoadAssignment,
    Endpoint,
    LbEndpoint,
    LocalityLbEndpoints,
)
from envoy_data_plane.envoy.extensions.load_balancing_policies.maglev.v3 import Maglev
from envoy_data_plane.envoy.extensions.load_balancing_policies.override_host.v3 import (
    OverrideHost,
    OverrideHostOverrideHostSource,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import (
    HttpProtocolOptions as UpstreamProtocolOptions,
)
from envoy_data_plane.envoy.extensions.upstreams.http.v3 import HttpProtocolOptionsExplicitHttpConfig
from envoy_data_plane.envoy.type.metadata.v3 import MetadataKey, MetadataKeyPathSegment
from envoy_data_plane.envoy.type.v3 import Percent

from fleet.names import (
    DESTINATION_KEY,
    DESTINATION_NAMESPACE,
    EXT_PROC_CLUSTER,
    LEADING_FILTER,
    TYPE_CLUSTER,
)
from xds_server.envoy import limits, tls, transports
from xds_server.envoy.extension import (
    UNLIMITED,
    address_of,
    discovery_type,
    extension,
    over_ads,
    packed,
    seconds,
)
from xds_server.envoy.proxyless import weighted_policy
from xds_server.envoy.upgrades import http1_cluster
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.settings import PoolSettings, Settings
    from fleet.settings.connections import ConnectionSettings

_UPSTREAM_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

# A frozen ext_proc costs each request its message timeout until two checks in a row have failed: within
# a second. Two, because one stall of a busy Python process is no reason to go without picks.
_HEALTH_INTERVAL_SECONDS: Final = 0.25
_HEALTH_TIMEOUT_SECONDS: Final = 0.25
_HEALTH_FAILURES: Final = 2

# A pool without discovered endpoints has no assignment yet, and a new Envoy waits for it before it serves.
_FIRST_ENDPOINTS_SECONDS: Final = 5.0

# Two refused connections in a row, of any requests, and the endpoint is left alone for this long (then
# longer, up to the maximum). Short, because a restarted engine should get requests at once.
_EJECT_AFTER_FAILURES: Final = 2
_EJECTION_SECONDS: Final = 2.0
_MAX_EJECTION_SECONDS: Final = 10.0
_MAX_EJECTED_PERCENT: Final = 50
_PANIC_PERCENT: Final = 50.0

# A host that vanishes sends nothing, so a stream that waits for tokens would wait for ever. Its connection
# ends after 20 + 3 * 10 s. The kernel answers these probes, so an engine may compute for minutes.
_KEEPALIVE_AFTER_SECONDS: Final = 20
_KEEPALIVE_INTERVAL_SECONDS: Final = 10
_KEEPALIVE_PROBES: Final = 3
# TCP_USER_TIMEOUT (RFC 5482) must stay unset, although without it Linux repeats a request to a host that has
# vanished for 15 minutes: it also ends a connection whose kernel answers while the engine reads nothing.


def clusters(settings: Settings) -> list[Resource]:
    """Every cluster that the listeners of these settings need."""
    connections = settings.connections
    made = [_pool_cluster(pool, pool.name, transports.of(pool), connections) for pool in settings.pools]
    for pool in settings.pools:
        second = http1_cluster(pool)
        if second is not None and second != pool.name:
            made.append(_pool_cluster(pool, second, transports.HTTP1, connections))
    made.append(_ext_proc_cluster(settings))
    return [Resource.of(cluster.name, TYPE_CLUSTER, bytes(cluster)) for cluster in made]


def _pool_cluster(
    pool: PoolSettings, name: str, transport: transports.Transport, connections: ConnectionSettings
) -> Cluster:
    return Cluster(
        name=name,
        type=ClusterDiscoveryType.EDS,
        eds_cluster_config=ClusterEdsClusterConfig(
            eds_config=over_ads(_FIRST_ENDPOINTS_SECONDS),
            # Both clusters of a pool share one load assignment.
            service_name="" if name == pool.name else pool.name,
        ),
        connect_timeout=seconds(pool.connect_timeout_seconds),
        transport_socket=tls.upstream(pool, transport.alpn),
        load_balancing_policy=_pick_then_weights(),
        circuit_breakers=limits.circuit_breakers(pool, _no_circuit_breaking()),
        common_lb_config=limits.common_lb_config(
            pool, ClusterCommonLbConfig(healthy_panic_threshold=Percent(value=_PANIC_PERCENT))
        ),
        outlier_detection=limits.outlier_detection(pool, _refused_connections_only()),
        health_checks=transport.probing(limits.health_checks(pool)),
        # An endpoint that leaves EDS goes although its probes pass.
        ignore_health_on_host_removal=pool.health_check is not None,
        upstream_connection_options=UpstreamConnectionOptions(
            tcp_keepalive=TcpKeepalive(
                keepalive_time=_KEEPALIVE_AFTER_SECONDS,
                keepalive_interval=_KEEPALIVE_INTERVAL_SECONDS,
                keepalive_probes=_KEEPALIVE_PROBES,
            )
        ),
        typed_extension_protocol_options={_UPSTREAM_OPTIONS: packed(transport.options(pool, connections))},
    )


def _pick_then_weights() -> LoadBalancingPolicy:
    """The pick from metadata, which no client can set; without a pick Maglev, which respects EDS weights.

    round_robin and least_request start again with every EDS update and then starve light endpoints.
    The policy behind is for gRPC: each client takes the first of the list that it knows.
    """
    by_key = MetadataKeyPathSegment(key=DESTINATION_KEY)
    whole = MetadataKey(key=DESTINATION_NAMESPACE, path=[by_key])
    leading = MetadataKey(
        key=LEADING_FILTER, path=[MetadataKeyPathSegment(key=DESTINATION_NAMESPACE), by_key]
    )
    maglev = _policy("envoy.load_balancing_policies.maglev", Maglev())
    override = OverrideHost(
        override_host_sources=[OverrideHostOverrideHostSource(metadata=key) for key in (whole, leading)],
        fallback_policy=maglev,
    )
    picked = _policy("envoy.load_balancing_policies.override_host", override)
    return LoadBalancingPolicy(policies=[*picked.policies, weighted_policy()])


def _policy(name: str, message: Maglev | OverrideHost) -> LoadBalancingPolicy:
    return LoadBalancingPolicy(
        policies=[LoadBalancingPolicyPolicy(typed_extension_config=extension(name, message))]
    )


def _no_circuit_breaking() -> CircuitBreakers:
    return CircuitBreakers(
        thresholds=[
            CircuitBreakersThresholds(
                max_connections=UNLIMITED,
                max_pending_requests=UNLIMITED,
                max_requests=UNLIMITED,
                max_retries=UNLIMITED,
            )
        ]
    )


def _refused_connections_only() -> OutlierDetection:
    """Eject endpoints that cannot be connected to. An engine's answers never eject it."""
    return OutlierDetection(
        interval=seconds(1.0),
        base_ejection_time=seconds(_EJECTION_SECONDS),
        max_ejection_time=seconds(_MAX_EJECTION_SECONDS),
        max_ejection_percent=_MAX_EJECTED_PERCENT,
        split_external_local_origin_errors=True,
        consecutive_local_origin_failure=_EJECT_AFTER_FAILURES,
        enforcing_consecutive_local_origin_failure=100,
        enforcing_local_origin_success_rate=0,
        enforcing_consecutive_5xx=0,
        enforcing_consecutive_gateway_failure=0,
        enforcing_success_rate=0,
        enforcing_failure_percentage=0,
        enforcing_failure_percentage_local_origin=0,
    )


def _ext_proc_cluster(settings: Settings) -> Cluster:
    http2 = transports.ext_proc_http2(settings)
    return Cluster(
        name=EXT_PROC_CLUSTER,
        type=ClusterDiscoveryType[discovery_type(settings.ext_proc.address)],
        connect_timeout=seconds(_HEALTH_TIMEOUT_SECONDS),
        transport_socket=tls.ext_proc_socket(settings),
        # One address a worker: with one port for all, each of Envoy's few connections would stick to one.
        load_assignment=_assignment(EXT_PROC_CLUSTER, settings.ext_proc.worker_addresses),
        circuit_breakers=_no_circuit_breaking(),
        # Without healthy hosts Envoy must give up on ext_proc at once, not try a frozen one in panic.
        common_lb_config=ClusterCommonLbConfig(
            healthy_panic_threshold=Percent(value=0.0),
            # 0: by default a change of health may reach the workers a second late, merged with others.
            update_merge_window=seconds(0),
        ),
        health_checks=[
            HealthCheck(
                timeout=seconds(_HEALTH_TIMEOUT_SECONDS),
                interval=seconds(_HEALTH_INTERVAL_SECONDS),
                # Its default of 60 s applies to this cluster, whatever its real traffic.
                no_traffic_interval=seconds(_HEALTH_INTERVAL_SECONDS),
                unhealthy_threshold=_HEALTH_FAILURES,
                healthy_threshold=1,
                grpc_health_check=HealthCheckGrpcHealthCheck(),
            )
        ],
        typed_extension_protocol_options={
            _UPSTREAM_OPTIONS: packed(
                UpstreamProtocolOptions(
                    explicit_http_config=HttpProtocolOptionsExplicitHttpConfig(http2_protocol_options=http2)
                )
            )
        },
    )


def _assignment(cluster: str, addresses: Sequence[str]) -> ClusterLoadAssignment:
    listed = [LbEndpoint(endpoint=Endpoint(address=address_of(address))) for address in addresses]
    return ClusterLoadAssignment(cluster_name=cluster, endpoints=[LocalityLbEndpoints(lb_endpoints=listed)])
