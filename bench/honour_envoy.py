"""One Envoy with many clusters that differ only in who balances them, and the discovery service behind it.

Every cluster is the product's own (override_host, without a pick: Maglev), or a copy of it with another
policy in that place; it holds the same engines and the same weights. A header names the cluster.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import yaml
from prometheus_client import CollectorRegistry

from fleet.endpoint import Membership, Pool
from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from fleet.service.serving import GrpcServer
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from xds_server.discovery.server import DiscoveryService
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.snapshot import Resource, Snapshot, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

OURS: Final = "override_host"
POLICIES: Final = {
    OURS: "",
    "round_robin": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
    "least_request": (
        "type.googleapis.com/envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"
    ),
}
"""Policy to its configuration's type; empty: as the product has it."""
HEADER: Final = "x-bench-cluster"
_POOL: Final = "engines"
_HCM: Final = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
)
_ROUTER: Final = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


class Clusters:
    """Serves `clusters` (name to policy), each with `weights` until `push` changes them.

    A cluster has the engines that it has a weight for; all that may ever have one are `addresses`.
    """

    def __init__(
        self,
        socket: str,
        clusters: Mapping[str, str],
        addresses: Sequence[str],
        weights: Mapping[str, int],
        merge_window: float | None,
    ) -> None:
        self._address = f"unix:{socket}"
        self._weights = {name: dict(weights) for name in clusters}
        self._settings = parse_settings(
            yaml.safe_dump(
                {
                    "pools": [
                        {"name": _POOL, "endpoints": [{"address": address} for address in addresses]},
                    ],
                    "listeners": [{"name": "front", "address": "127.0.0.1:10000", "pool": _POOL}],
                }
            )
        )
        self._membership = membership(self._settings)
        self._store = SnapshotStore()
        self._grpc = GrpcServer("honour", self._address)
        DiscoveryService(self._store, CollectorRegistry(), 10).register(self._grpc.server)
        product = self._snapshot(weights).of_type(TYPE_CLUSTER)[_POOL].body.value
        self._clusters = [
            Resource.of(name, TYPE_CLUSTER, _cluster(product, name, policy, merge_window))
            for name, policy in clusters.items()
        ]

    async def start(self) -> None:
        """Serve."""
        self.push({})
        await self._grpc.start()

    async def stop(self) -> None:
        """End."""
        await self._grpc.stop(0)

    def push(self, weights: Mapping[str, Mapping[str, int]]) -> None:
        """Give some clusters other weights: cluster to address to weight."""
        for name, shares in weights.items():
            self._weights[name] = dict(shares)
        self._store.set(Snapshot.of([*self._clusters, *(self._assignment(name) for name in self._weights)]))

    def bootstrap(self, listener: str) -> dict[str, Any]:
        """Return the bootstrap of an Envoy that listens on `listener`, `ip:port`."""
        made = bootstrap(ads_address=self._address, node_id="honour", node_cluster="bench")
        del made["dynamic_resources"]["lds_config"]
        made["static_resources"]["listeners"] = [_listener(listener)]
        return made

    def _snapshot(self, weights: Mapping[str, int]) -> Snapshot:
        pool = self._membership.pools[0]
        present = tuple(endpoint for endpoint in pool.endpoints if endpoint.address in weights)
        return build_snapshot(self._settings, Membership((Pool(pool.name, present),)), weights, frozenset())

    def _assignment(self, name: str) -> Resource:
        """The product's own assignment, under the cluster's name."""
        body = self._snapshot(self._weights[name]).of_type(TYPE_ENDPOINT)[_POOL].body.value
        assignment = endpoint_pb2.ClusterLoadAssignment.FromString(body)
        assignment.cluster_name = name
        return Resource.of(name, TYPE_ENDPOINT, assignment.SerializeToString(deterministic=True))


def _cluster(product: bytes, name: str, policy: str, merge_window: float | None) -> bytes:
    cluster = cluster_pb2.Cluster.FromString(product)
    cluster.name = name
    if type_url := POLICIES[policy]:
        # The message has no fields set, so its bytes are empty and its class is not needed.
        cluster.ClearField("load_balancing_policy")
        extension = cluster.load_balancing_policy.policies.add().typed_extension_config
        extension.name = policy
        extension.typed_config.type_url = type_url
    if merge_window is not None:
        cluster.common_lb_config.update_merge_window.FromTimedelta(timedelta(seconds=merge_window))
    return bytes(cluster.SerializeToString(deterministic=True))


def _listener(address: str) -> dict[str, Any]:
    host, _, port = address.rpartition(":")
    # Unlike a cluster's name, the header's name is no reason to wait for clusters at the start.
    routes = [{"match": {"prefix": "/"}, "route": {"cluster_header": HEADER, "timeout": "0s"}}]
    manager = {
        "@type": _HCM,
        "stat_prefix": "honour",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": {"@type": _ROUTER}}],
    }
    return {
        "name": "front",
        "address": {"socket_address": {"address": host, "port_value": int(port)}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
