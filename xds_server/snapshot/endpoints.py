"""Load assignments: the endpoints of a membership with their weights and health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fleet.endpoint import Pool
from fleet.envoy_api.config.core.v3 import health_check_pb2
from fleet.errors import SnapshotError
from fleet.identity import cached_by_identity
from xds_server.snapshot.assignment import Assignment, Layout
from xds_server.weights.border import MIN_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.endpoint import Membership
    from xds_server.snapshot.snapshot import Resource

_HEALTHY_SHARE: Final = 0.5
"""Envoy's `healthy_panic_threshold`: below it a balancer may send to all endpoints. Ours (override_host over
Maglev, Envoy 1.40) does so only without any healthy endpoint; other Envoys may use other balancers."""


def load_assignments(
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
) -> list[Resource]:
    """One ClusterLoadAssignment a pool; its name is the cluster's name.

    An endpoint without a weight gets the mean weight of its peers. Those in `draining` have the status
    DRAINING, or are left out where that would make Envoy panic.

    Raises:
        SnapshotError: an address occurs twice, or a weight or a sum is outside the range of EDS.
    """
    return [entry.resource() for entry in assignments(membership, weights, unhealthy, draining)]


def assignments(
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
) -> tuple[Assignment, ...]:
    """Return the assignments before serialisation, which a node group may serialise with its own weights.

    Raises:
        SnapshotError: as `load_assignments`.
    """
    health = dict.fromkeys(unhealthy, int(health_check_pb2.UNHEALTHY))
    health |= dict.fromkeys(draining, int(health_check_pb2.DRAINING))
    assignments = []
    for pool, layout in zip(membership.pools, _layouts(membership), strict=True):
        staying = _without_panic(pool, unhealthy, draining)
        used = layout if staying is pool else Layout(staying)
        assignments.append(Assignment.of(used, weights, _mean_weight(used.addresses, weights), health))
    return tuple(assignments)


@cached_by_identity
def _layouts(membership: Membership) -> tuple[Layout, ...]:
    _check_addresses(membership.pools)
    return tuple(Layout(pool) for pool in membership.pools)


def _check_addresses(pools: Iterable[Pool]) -> None:
    pool_of: dict[str, str] = {}
    for pool in pools:
        for endpoint in pool.endpoints:
            if endpoint.address in pool_of:
                where = f"{pool_of[endpoint.address]!r} and {pool.name!r}"
                raise SnapshotError(f"address {endpoint.address!r} occurs twice: in {where}")
            pool_of[endpoint.address] = pool.name


def _without_panic(pool: Pool, unhealthy: frozenset[str], draining: frozenset[str]) -> Pool:
    """Leave out draining endpoints where Envoy would otherwise count too few as healthy and panic.

    Requests in progress at an endpoint that is left out go on. Without other endpoints Envoy may try the
    draining ones.
    """
    if not draining:
        return pool
    staying = tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in draining)
    if not staying or len(staying) == len(pool.endpoints):
        return pool
    healthy = sum(endpoint.address not in unhealthy for endpoint in staying)
    return pool if healthy >= _HEALTHY_SHARE * len(pool.endpoints) else Pool(pool.name, staying)


def _mean_weight(addresses: Iterable[str], weights: Mapping[str, int]) -> int:
    present = [weights[address] for address in addresses if address in weights]
    return round(sum(present) / len(present)) if present else MIN_WEIGHT
