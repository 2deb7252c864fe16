"""Endpoints and their weights: the one resource that changes often, so it is built with upb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from fleet.endpoint import Pool
from fleet.errors import SnapshotError
from fleet.names import TYPE_ENDPOINT
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.endpoint import Endpoint, Locality, Membership

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 10_000
_MAX_UINT32: Final = 2**32 - 1
_HEALTHY_SHARE: Final = 0.5
"""The clusters' `healthy_panic_threshold`: with a smaller share Envoy sends to everybody."""


def load_assignments(
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
) -> list[Resource]:
    """One ClusterLoadAssignment a pool; its name is the cluster's name.

    An endpoint without a weight is one of which nothing is known: it counts as the mean of its peers.
    Those in `draining` are told as DRAINING, or left out where that would make Envoy panic.

    Raises:
        SnapshotError: an address stands twice, or a weight or a sum is outside what EDS may carry.
    """
    _check_addresses(membership.pools)
    return [
        _load_assignment(_without_panic(pool, unhealthy, draining), weights, unhealthy, draining)
        for pool in membership.pools
    ]


def _check_addresses(pools: Iterable[Pool]) -> None:
    seen: dict[str, str] = {}
    for pool in pools:
        for endpoint in pool.endpoints:
            if endpoint.address in seen:
                where = f"{seen[endpoint.address]!r} and {pool.name!r}"
                raise SnapshotError(f"address {endpoint.address!r} stands twice: in {where}")
            seen[endpoint.address] = pool.name


def _without_panic(pool: Pool, unhealthy: frozenset[str], draining: frozenset[str]) -> Pool:
    """Leave out who drains where Envoy would otherwise count too few as healthy, and then try everybody.

    A request that an endpoint has begun goes on when it is left out. Without peers Envoy may try those who
    drain: nobody else is there.
    """
    staying = tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in draining)
    if not staying or len(staying) == len(pool.endpoints):
        return pool
    healthy = sum(endpoint.address not in unhealthy for endpoint in staying)
    return pool if healthy >= _HEALTHY_SHARE * len(pool.endpoints) else Pool(pool.name, staying)


def _load_assignment(
    pool: Pool, weights: Mapping[str, int], unhealthy: frozenset[str], draining: frozenset[str]
) -> Resource:
    assignment = endpoint_pb2.ClusterLoadAssignment(cluster_name=pool.name)
    unknown = _mean_weight(pool, weights)
    for place, endpoints in _by_locality(pool.endpoints):
        group = assignment.endpoints.add()
        # An empty message, not an absent one: Envoy then knows that there is no locality.
        group.locality.SetInParent()
        group.locality.region = place.region
        group.locality.zone = place.zone
        group.locality.sub_zone = place.sub_zone
        total = 0
        for endpoint in endpoints:
            weight = weights.get(endpoint.address, unknown)
            if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
                raise SnapshotError(f"weight {weight} of {endpoint.address!r} is not in [1, 10000]")
            total += weight
            _add(group, endpoint, weight, _health(endpoint.address, unhealthy, draining))
        if total > _MAX_UINT32:
            raise SnapshotError(f"weights of {pool.name!r} in one locality sum up to {total}, over 32 bits")
        # Equal for all: gRPC's ring_hash multiplies it into the endpoints' weights, and drops a locality
        # without one. Envoy's Maglev does not look at it.
        group.load_balancing_weight.value = 1
    return Resource.of(pool.name, TYPE_ENDPOINT, assignment.SerializeToString(deterministic=True))


def _add(
    group: endpoint_pb2.LocalityLbEndpoints,  # type: ignore[name-defined, unused-ignore]
    endpoint: Endpoint,
    weight: int,
    health: int,
) -> None:
    entry = group.lb_endpoints.add()
    address = entry.endpoint.address.socket_address
    address.address = endpoint.host
    address.port_value = endpoint.port
    entry.load_balancing_weight.value = weight
    entry.health_status = health


def _health(address: str, unhealthy: frozenset[str], draining: frozenset[str]) -> int:
    if address in draining:
        return int(health_check_pb2.DRAINING)
    return int(health_check_pb2.UNHEALTHY if address in unhealthy else health_check_pb2.HEALTHY)


def _mean_weight(pool: Pool, weights: Mapping[str, int]) -> int:
    known = [weights[endpoint.address] for endpoint in pool.endpoints if endpoint.address in weights]
    return round(sum(known) / len(known)) if known else MIN_WEIGHT


def _by_locality(endpoints: Iterable[Endpoint]) -> list[tuple[Locality, list[Endpoint]]]:
    grouped: dict[Locality, list[Endpoint]] = {}
    for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.address):
        grouped.setdefault(endpoint.locality, []).append(endpoint)
    return sorted(grouped.items(), key=lambda item: (item[0].region, item[0].zone, item[0].sub_zone))
