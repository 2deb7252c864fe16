"""The check that a snapshot does not contradict itself, made on the serialised resources."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.listener.v3 import listener_pb2
from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from fleet.errors import SnapshotError
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from xds_server.snapshot.snapshot import Resource, Snapshot


def check(snapshot: Snapshot, undiscovered: AbstractSet[str] = frozenset()) -> None:
    """Check that every name which a resource refers to is a resource of the same snapshot.

    Load assignments in `undiscovered` may be missing: their endpoints are unknown, which differs from empty.

    Raises:
        SnapshotError: it names the missing or unused resources.
    """
    clusters = snapshot.of_type(TYPE_CLUSTER)
    endpoints = snapshot.of_type(TYPE_ENDPOINT)
    routes = snapshot.of_type(TYPE_ROUTE)
    by_eds = _references(clusters.values())
    _same("load assignments", by_eds - (undiscovered - endpoints.keys()), endpoints.keys())
    _same("route configurations", _references(snapshot.of_type(TYPE_LISTENER).values()), routes.keys())
    if missing := _references(routes.values()) - clusters.keys():
        raise SnapshotError(f"routes refer to clusters that do not exist: {', '.join(sorted(missing))}")


def _same(what: str, referred: AbstractSet[str], existing: AbstractSet[str]) -> None:
    if missing := referred - existing:
        raise SnapshotError(f"{what} are referred to but missing: {', '.join(sorted(missing))}")
    if unused := existing - referred:
        raise SnapshotError(f"{what} exist that nothing refers to: {', '.join(sorted(unused))}")


def _references(resources: Iterable[Resource]) -> frozenset[str]:
    return frozenset(
        name
        for resource in resources
        for name in _references_of(resource.type_url, bytes(resource.body.value))
    )


@lru_cache(maxsize=256)
def _references_of(type_url: str, serialised: bytes) -> frozenset[str]:
    """Cached, because these resources stay the same over thousands of weight updates."""
    if type_url == TYPE_CLUSTER:
        return _load_assignments(serialised)
    if type_url == TYPE_LISTENER:
        return _route_configurations(serialised)
    return _route_clusters(serialised)


def _load_assignments(serialised: bytes) -> frozenset[str]:
    cluster = cluster_pb2.Cluster.FromString(serialised)
    if cluster.type != cluster_pb2.Cluster.EDS:
        return frozenset()
    return frozenset([cluster.eds_cluster_config.service_name or cluster.name])


def _route_configurations(serialised: bytes) -> frozenset[str]:
    names = set()
    for chain in listener_pb2.Listener.FromString(serialised).filter_chains:
        for entry in chain.filters:
            manager = http_connection_manager_pb2.HttpConnectionManager()
            if entry.typed_config.Unpack(manager) and manager.HasField("rds"):
                names.add(manager.rds.route_config_name)
    return frozenset(names)


def _route_clusters(serialised: bytes) -> frozenset[str]:
    config = route_pb2.RouteConfiguration.FromString(serialised)
    entries = (entry for host in config.virtual_hosts for entry in host.routes)
    return frozenset(entry.route.cluster for entry in entries if entry.HasField("route"))
