"""Turns an Envoy's configuration, states and statistics into facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from warmroute.doctor.envoy.clusters import cluster_of, weights_by_state, weights_of
from warmroute.doctor.envoy.facts import (
    DEFAULT_BUFFER_BYTES,
    DEFAULT_STREAM_IDLE_SECONDS,
    Cluster,
    Facts,
    Manager,
    Passage,
)
from warmroute.doctor.envoy.filters import cleared, filters_in_force
from warmroute.doctor.envoy.plain import Node
from warmroute.doctor.envoy.routes import RouteTarget, targets_of
from warmroute.doctor.envoy.stats import stats_of
from warmroute.doctor.rule import DoctorError

_RESOURCES: Final = ("static_resources", "dynamic_resources", "staticResources", "dynamicResources")
_BOOTSTRAP: Final = (*_RESOURCES, "node", "admin")
CONFIGURATION: Final = "configuration"
CLUSTERS: Final = "clusters"
STATS: Final = "stats"
_NONE: Final = "not an Envoy's configuration: no config_dump, bootstrap or resources"
_SETTINGS: Final = (
    "Warmroute's settings, not an Envoy's configuration: they are for --settings, and --admin asks an Envoy"
)
_EMPTY: Final = (
    "no HTTP listener and no cluster, so nothing can be judged: what comes by discovery only a running Envoy"
    " tells (--admin)"
)
_WEBSOCKET: Final = "websocket"
_MOST_PASSAGES: Final = 100_000


@dataclass(slots=True)
class _Parts:
    """The messages of a document, wherever they stand in it."""

    bootstrap: Node = field(default_factory=lambda: Node({}))
    listeners: list[Node] = field(default_factory=list)
    clusters: list[Node] = field(default_factory=list)
    routes: dict[str, Node] = field(default_factory=dict)
    assignments: dict[str, Node] = field(default_factory=dict)
    discovered: dict[str, Node] = field(default_factory=dict)

    def add(self, resource: Node) -> None:
        """Take a resource by its type."""
        kind, name = resource.kind.rpartition(".")[2], resource.text("name")
        if kind == "Listener":
            self.listeners.append(Node(resource.data, f"listeners[{name}]"))
        elif kind == "Cluster":
            self.clusters.append(Node(resource.data, f"clusters[{name}]"))
        elif kind == "RouteConfiguration":
            self.routes[name] = Node(resource.data, f"routes[{name}]")
        elif kind == "ClusterLoadAssignment":
            self.assignments[resource.text("cluster_name")] = resource
        elif kind == "TypedExtensionConfig":
            self.discovered[name] = resource.extension()


def read(config: Any, states: Any = None, stats: Any = None) -> Facts:
    """Read an Envoy.

    Args:
        config: `/config_dump?include_eds`, a bootstrap, or a file of xDS resources, as plain data.
        states: `/clusters?format=json`.
        stats: `/stats?format=json`.

    Raises:
        DoctorError: one of these has another form, or nothing in `config` can be judged.
    """
    parts = _parts(config)
    # The JSON form leaves empty lists out.
    _like(states, "cluster_statuses", CLUSTERS, may_be_empty=True)
    _like(stats, "stats", STATS)
    weights = weights_by_state(states)
    clusters = {node.text("name"): _cluster(node, parts, weights) for node in parts.clusters}
    managers: list[Manager] = []
    passages: list[Passage] = []
    users: dict[str, list[str]] = {}
    for listener in parts.listeners:
        for node in _manager_nodes(listener):
            manager = _manager(listener, node)
            managers.append(manager)
            for cluster, where in _grpc_services(node, parts.discovered):
                users.setdefault(cluster, []).append(where)
            for passage in _passages(manager, node, parts):
                passages.append(passage)
                if len(passages) > _MOST_PASSAGES:
                    raise DoctorError(f"more than {_MOST_PASSAGES} routes", CONFIGURATION)
    if not managers and not any(clusters):
        raise DoctorError(_EMPTY, CONFIGURATION)
    ads = _ads_cluster(parts.bootstrap)
    if ads:
        users.setdefault(ads, []).append("dynamic_resources.ads_config")
    return Facts(
        passages=tuple(passages),
        clusters=clusters,
        managers=tuple(managers),
        grpc_users={cluster: tuple(dict.fromkeys(where)) for cluster, where in users.items()},
        ads_cluster=ads,
        stats=stats_of(stats),
    )


def _parts(config: Any) -> _Parts:
    if not isinstance(config, Mapping):
        raise DoctorError(_NONE, CONFIGURATION)
    node, parts = Node(config), _Parts()
    if isinstance(config.get("configs"), list):
        for section in node.items("configs"):
            _add_section(section, parts)
    elif isinstance(config.get("resources"), list):
        for resource in node.items("resources"):
            parts.add(resource)
    elif isinstance(config.get("pools"), list) and not any(name in config for name in _RESOURCES):
        raise DoctorError(_SETTINGS, CONFIGURATION)
    elif any(name in config for name in _BOOTSTRAP):
        parts.bootstrap = node
        static = node.child("static_resources")
        parts.listeners = [
            Node(listener.data, f"listeners[{listener.text('name') or n}]")
            for n, listener in enumerate(static.items("listeners"))
        ]
        parts.clusters = [
            Node(cluster.data, f"clusters[{cluster.text('name')}]") for cluster in static.items("clusters")
        ]
    else:
        raise DoctorError(_NONE, CONFIGURATION)
    return parts


def _like(document: Any, field_name: str, which: str, *, may_be_empty: bool = False) -> None:
    """Refuse a document of another kind: everything it lacks would count as absent."""
    if document is None or (may_be_empty and document == {}):
        return
    if not isinstance(document, Mapping) or not Node(document).has(field_name):
        raise DoctorError(f"no `{field_name}`: not what /{which}?format=json tells", which)


def _add_section(section: Node, parts: _Parts) -> None:
    """Take the resources of one section of a config_dump: the active ones, otherwise the warming ones."""
    if section.kind.endswith("BootstrapConfigDump"):
        parts.bootstrap = section.child("bootstrap")
    elif section.kind.endswith("ConfigDump"):
        for name in section.data:
            for entry in section.items(name):
                state = next((s for s in ("active_state", "warming_state") if entry.has(s)), None)
                in_force = entry.child(state) if state else entry
                for inner in ("listener", "cluster", "route_config", "endpoint_config", "ecds_filter"):
                    if in_force.has(inner) and name != "dynamic_warming_clusters":
                        parts.add(in_force.child(inner))


def _cluster(node: Node, parts: _Parts, weights: Mapping[str, tuple[int, ...]]) -> Cluster:
    name = node.text("name")
    own_weights = weights.get(name)
    assignment = parts.assignments.get(node.child("eds_cluster_config").text("service_name") or name)
    if own_weights is None and assignment is not None:
        own_weights = weights_of(assignment)
    return cluster_of(node, own_weights)


def _manager_nodes(listener: Node) -> Iterator[Node]:
    chains = [*listener.items("filter_chains")]
    if listener.has("default_filter_chain"):
        chains.append(listener.child("default_filter_chain"))
    for chain in chains:
        for network_filter in chain.items("filters"):
            config = network_filter.extension()
            if config.kind.endswith("HttpConnectionManager"):
                yield Node(config.data, network_filter.where.replace("envoy.filters.network.", ""))


def _manager(listener: Node, node: Node) -> Manager:
    limit = listener.whole("per_connection_buffer_limit_bytes")
    idle = node.seconds("stream_idle_timeout")
    early = (
        name
        for extension in node.items("early_header_mutation_extensions")
        for name in cleared(extension.extension().items("mutations"))
    )
    return Manager(
        where=node.where,
        listener=listener.text("name"),
        stat_prefix=node.text("stat_prefix"),
        buffer_bytes=DEFAULT_BUFFER_BYTES if limit is None else (limit or None),
        buffer_where=f"{listener.where}.per_connection_buffer_limit_bytes",
        stream_idle_seconds=DEFAULT_STREAM_IDLE_SECONDS if idle is None else idle,
        request_seconds=node.seconds("request_timeout") or 0.0,
        max_stream_seconds=node.child("common_http_protocol_options").seconds("max_stream_duration") or 0.0,
        max_concurrent_streams=node.child("http2_protocol_options").whole("max_concurrent_streams"),
        removes=frozenset(early),
        log_clusters=frozenset(
            _grpc_cluster(log.extension().child("common_config"))
            for log in node.items("access_log")
            if log.extension().kind.endswith("HttpGrpcAccessLogConfig")
        ),
    )


def _passages(manager: Manager, node: Node, parts: _Parts) -> Iterator[Passage]:
    chain = list(node.items("http_filters"))
    allowed = [
        upgrade
        for upgrade in node.items("upgrade_configs")
        if upgrade.text("upgrade_type").lower() == _WEBSOCKET
    ]
    default = any(upgrade.flag("enabled") is not False for upgrade in allowed)
    chains = (list(upgrade.items("filters")) for upgrade in allowed if upgrade.has("filters"))
    upgrade_chain = next(chains, None) or chain
    for target in targets_of(_route_config(node, parts)):
        if target.ordinary:
            yield _passage(manager, target, chain, parts.discovered)
        if target.upgrade and target.upgrades.get(_WEBSOCKET, default):
            yield _passage(manager, target, upgrade_chain, parts.discovered, upgrade=True)


def _route_config(node: Node, parts: _Parts) -> Node:
    if node.has("route_config"):
        inline = node.child("route_config")
        return Node(inline.data, f"routes[{inline.text('name') or node.text('stat_prefix')}]")
    return parts.routes.get(node.child("rds").text("route_config_name"), Node({}))


def _passage(
    manager: Manager,
    target: RouteTarget,
    chain: list[Node],
    discovered: Mapping[str, Node],
    *,
    upgrade: bool = False,
) -> Passage:
    return Passage(manager, target.route, filters_in_force(chain, target.levels, discovered), upgrade)


def _grpc_services(node: Node, discovered: Mapping[str, Node]) -> Iterator[tuple[str, str]]:
    """Cluster and place of the gRPC services of a connection manager's filters and access logs."""
    for entry in node.items("http_filters"):
        config = entry.extension()
        if not config.data:
            config = discovered.get(entry.text("name"), config)
        for inner in (config, config.child("rate_limit_service")):
            if cluster := _grpc_cluster(inner):
                yield cluster, entry.where
    for entry in node.items("access_log"):
        if cluster := _grpc_cluster(entry.extension().child("common_config")):
            yield cluster, entry.where


def _grpc_cluster(node: Node) -> str:
    return node.child("grpc_service", "envoy_grpc").text("cluster_name")


def _ads_cluster(bootstrap: Node) -> str:
    services = bootstrap.child("dynamic_resources", "ads_config").items("grpc_services")
    return next((service.child("envoy_grpc").text("cluster_name") for service in services), "")
