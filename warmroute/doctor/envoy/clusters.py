"""Reads clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from warmroute.doctor.envoy.facts import (
    DEFAULT_CONNECT_SECONDS,
    DEFAULT_NO_TRAFFIC_SECONDS,
    DEFAULT_PANIC_PERCENT,
    DEFAULT_UPSTREAM_IDLE_SECONDS,
    Breakers,
    Cluster,
    HealthCheck,
    Policy,
)
from warmroute.doctor.envoy.plain import Node

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_DISCOVERY: Final = ("STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST")
_POLICIES: Final = (
    "ROUND_ROBIN",
    "LEAST_REQUEST",
    "RING_HASH",
    "RANDOM",
    "ORIGINAL_DST_LB",
    "MAGLEV",
    "CLUSTER_PROVIDED",
    "LOAD_BALANCING_POLICY_CONFIG",
)
_DESTINATION_HEADER: Final = "x-envoy-original-dst-host"
_DEEPEST_POLICY: Final = 8


def cluster_of(node: Node, weights: tuple[int, ...] | None) -> Cluster:
    """Read one cluster; `weights` are its endpoints' from another source; None: from the cluster itself."""
    options = node.child("typed_extension_protocol_options", _OPTIONS)
    http2 = _http2(node, options)
    common = [options.child("common_http_protocol_options"), node.child("common_http_protocol_options")]
    destination = node.child("original_dst_lb_config")
    header = destination.text("http_header_name") or _DESTINATION_HEADER
    connect = node.seconds("connect_timeout")
    panic = node.child("common_lb_config").percent("healthy_panic_threshold")
    return Cluster(
        name=node.text("name"),
        where=node.where,
        discovery=node.enum("type", _DISCOVERY),
        http2=http2 is not None,
        http1=not options.child("explicit_http_config").has("http2_protocol_options")
        and not node.has("http2_protocol_options"),
        tls=_tls(node),
        connect_seconds=DEFAULT_CONNECT_SECONDS if connect is None else connect,
        keepalive_seconds=http2.child("connection_keepalive").seconds("interval") if http2 else None,
        max_concurrent_streams=http2.whole("max_concurrent_streams") if http2 else None,
        idle_seconds=_first(common, "idle_timeout", DEFAULT_UPSTREAM_IDLE_SECONDS),
        max_stream_seconds=_first(common, "max_stream_duration", 0.0),
        breakers=_breakers(node),
        health_checks=tuple(_health_check(check) for check in node.items("health_checks")),
        panic_percent=DEFAULT_PANIC_PERCENT if panic is None else panic,
        policy=_policy(node),
        outlier=node.has("outlier_detection"),
        destination_header=header.lower() if destination.flag("use_http_header") else "",
        weights=weights if weights is not None else _own_weights(node),
    )


def _first(nodes: list[Node], name: str, default: float) -> float:
    return next((read for node in nodes if (read := node.seconds(name)) is not None), default)


def _http2(node: Node, options: Node) -> Node | None:
    """The HTTP/2 options; None for a cluster that never speaks HTTP/2."""
    for form in ("explicit_http_config", "auto_config", "use_downstream_protocol_config"):
        if options.child(form).has("http2_protocol_options"):
            return options.child(form, "http2_protocol_options")
    if node.has("http2_protocol_options"):
        return node.child("http2_protocol_options")
    return None


def _tls(node: Node) -> bool:
    matches = node.items("transport_socket_matches")
    sockets = [node.child("transport_socket"), *(match.child("transport_socket") for match in matches)]
    return any(socket.extension().kind.endswith("UpstreamTlsContext") for socket in sockets)


def _breakers(node: Node) -> Breakers:
    for thresholds in node.child("circuit_breakers").items("thresholds"):
        if thresholds.enum("priority", ("DEFAULT", "HIGH")) == "DEFAULT":
            return Breakers(
                max_connections=thresholds.whole("max_connections"),
                max_pending=thresholds.whole("max_pending_requests"),
                max_requests=thresholds.whole("max_requests"),
                max_retries=thresholds.whole("max_retries"),
                retry_budget=thresholds.has("retry_budget"),
            )
    return Breakers()


def _health_check(node: Node) -> HealthCheck:
    no_traffic = node.seconds("no_traffic_interval")
    return HealthCheck(
        where=node.where,
        grpc=node.has("grpc_health_check"),
        timeout_seconds=node.seconds("timeout") or 0.0,
        interval_seconds=node.seconds("interval") or 0.0,
        no_traffic_seconds=DEFAULT_NO_TRAFFIC_SECONDS if no_traffic is None else no_traffic,
        unhealthy_threshold=node.whole("unhealthy_threshold") or 1,
        one_answer_is_enough=node.has("http_health_check")
        and not node.child("http_health_check").each("retriable_statuses"),
    )


def _policy(node: Node) -> Policy:
    policies = node.child("load_balancing_policy")
    if policies.has("policies"):
        return _typed_policy(policies)
    name = node.enum("lb_policy", _POLICIES).lower()
    return Policy(name, slow_start=node.child(f"{name}_lb_config").has("slow_start_config"))


def _typed_policy(listed: Node, depth: int = 0) -> Policy:
    """Read the first policy of a list: those after it are for clients that do not know the first."""
    first = next(listed.items("policies"), None)
    if first is None or depth > _DEEPEST_POLICY:
        return Policy("")
    extension = first.child("typed_extension_config")
    config = extension.extension()
    name = _policy_name(config.kind) or extension.text("name").rpartition(".")[2]
    slow_start = config.has("slow_start_config")
    inner = next((form for form in ("fallback_policy", "endpoint_picking_policy") if config.has(form)), None)
    behind = _typed_policy(config.child(inner), depth + 1) if inner else None
    sources = list(config.items("override_host_sources"))
    return Policy(
        name,
        metadata_sources=tuple(_metadata_source(source) for source in sources if source.has("metadata")),
        header_sources=tuple(source.text("header").lower() for source in sources if source.has("header")),
        fallback=behind.by_weights if behind else "",
        slow_start=slow_start or (behind is not None and behind.slow_start),
    )


def _policy_name(kind: str) -> str:
    _, separator, rest = kind.partition("load_balancing_policies.")
    return rest.partition(".")[0] if separator else ""


def _metadata_source(source: Node) -> str:
    metadata = source.child("metadata")
    return "/".join([metadata.text("key"), *(part.text("key") for part in metadata.items("path"))])


def _own_weights(node: Node) -> tuple[int, ...] | None:
    """Weights of endpoints that stand in the cluster itself."""
    return weights_of(node.child("load_assignment")) if node.has("load_assignment") else None


def weights_of(assignment: Node) -> tuple[int, ...]:
    """The weights of an assignment's endpoints; an endpoint without one has 1."""
    return tuple(
        endpoint.whole("load_balancing_weight") or 1
        for locality in assignment.items("endpoints")
        for endpoint in locality.items("lb_endpoints")
    )


def weights_by_state(states: object) -> Mapping[str, tuple[int, ...]]:
    """Read `/clusters?format=json`: cluster to its endpoints' weights."""
    return dict(_by_state(Node(states if isinstance(states, Mapping) else {})))


def _by_state(states: Node) -> Iterator[tuple[str, tuple[int, ...]]]:
    for cluster in states.items("cluster_statuses"):
        yield (
            cluster.text("name"),
            tuple(host.whole("weight") or 1 for host in cluster.items("host_statuses")),
        )
