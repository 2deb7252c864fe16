"""Endpoints and their weights: the one resource that changes often, so it is built with upb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy.config.core.v3 import health_check_pb2
from envoy.config.endpoint.v3 import endpoint_pb2

from fleet.errors import SnapshotError
from fleet.names import TYPE_ENDPOINT
from xds_server.snapshot.snapshot import Resource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.endpoint import Endpoint, Locality, Membership, Pool

MIN_WEIGHT: Final = 1
MAX_WEIGHT: Final = 10_000
_MAX_UINT32: Final = 2**32 - 1


def load_assignments(
    membership: Membership, weights: Mapping[str, int], unhealthy: frozenset[str]
) -> list[Resource]:
    """One ClusterLoadAssignment a pool; its name is the cluster's name.

    An endpoint without a weight is one of which nothing is known: it counts as the mean of its peers.

    Raises:
        SnapshotError: an address stands twice, or a weight or a sum is outside what EDS may carry.
    """
    _check_addresses(membership.pools)
    return [_load_assignment(pool, weights, unhealthy) for pool in membership.pools]


def _check_addresses(pools: Iterable[Pool]) -> None:
    seen: dict[str, str] = {}
    for pool in pools:
        for endpoint in pool.endpoints:
            if endpoint.address in seen:
                where = f"{seen[endpoint.address]!r} and {pool.name!r}"
                raise SnapshotError(f"address {endpoint.address!r} stands twice: in {where}")
            seen[endpoint.address] = pool.name


def _load_assignment(pool: Pool, weights: Mapping[str, int], unhealthy: frozenset[str]) -> Resource:
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
            _add(group, endpoint, weight, endpoint.address in unhealthy)
        if total > _MAX_UINT32:
            raise SnapshotError(f"weights of {pool.name!r} in one locality sum up to {total}, over 32 bits")
        # Equal to the sum, so that a policy which weighs localities first comes to the same shares.
        group.load_balancing_weight.value = total
    return Resource.of(pool.name, TYPE_ENDPOINT, assignment.SerializeToString(deterministic=True))


def _add(
    group: endpoint_pb2.LocalityLbEndpoints,  # type: ignore[name-defined, unused-ignore]
    endpoint: Endpoint,
    weight: int,
    down: bool,  # noqa: FBT001
) -> None:
    entry = group.lb_endpoints.add()
    address = entry.endpoint.address.socket_address
    address.address = endpoint.host
    address.port_value = endpoint.port
    entry.load_balancing_weight.value = weight
    entry.health_status = health_check_pb2.UNHEALTHY if down else health_check_pb2.HEALTHY


def _mean_weight(pool: Pool, weights: Mapping[str, int]) -> int:
    known = [weights[endpoint.address] for endpoint in pool.endpoints if endpoint.address in weights]
    return round(sum(known) / len(known)) if known else MIN_WEIGHT


def _by_locality(endpoints: Iterable[Endpoint]) -> list[tuple[Locality, list[Endpoint]]]:
    grouped: dict[Locality, list[Endpoint]] = {}
    for endpoint in sorted(endpoints, key=lambda endpoint: endpoint.address):
        grouped.setdefault(endpoint.locality, []).append(endpoint)
    return sorted(grouped.items(), key=lambda item: (item[0].region, item[0].zone, item[0].sub_zone))
