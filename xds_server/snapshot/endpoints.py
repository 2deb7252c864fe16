"""Endpoints and their weights: which of a membership are told, with which health."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fleet.endpoint import Pool
from fleet.envoy_api.config.core.v3 import health_check_pb2
from fleet.errors import SnapshotError
from xds_server.snapshot.assignment import Assignment, Layout
from xds_server.weights.border import MIN_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.endpoint import Membership
    from xds_server.snapshot.snapshot import Resource

_HEALTHY_SHARE: Final = 0.5
"""Envoy's `healthy_panic_threshold`: below it a balancer may send to everybody. Ours (override_host over
Maglev, Envoy 1.40) does so only without any healthy endpoint; other people's Envoys have other ones."""


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
    return [held.resource() for held in assignments(membership, weights, unhealthy, draining)]


def assignments(
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
) -> tuple[Assignment, ...]:
    """Return what `load_assignments` serialises, from which other weights can be serialised too.

    Raises:
        SnapshotError: as `load_assignments`.
    """
    health = dict.fromkeys(unhealthy, int(health_check_pb2.UNHEALTHY))
    health |= dict.fromkeys(draining, int(health_check_pb2.DRAINING))
    made = []
    for pool, layout in zip(membership.pools, _layouts(_Same(membership)), strict=True):
        told = _without_panic(pool, unhealthy, draining)
        held = layout if told is pool else Layout(told)
        made.append(Assignment.of(held, weights, _mean_weight(held.addresses, weights), health))
    return tuple(made)


class _Same:
    """A membership compared by identity: it is frozen, and comparing it would cost more than it saves."""

    __slots__ = ("membership",)

    def __init__(self, membership: Membership) -> None:
        self.membership = membership

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.membership is self.membership

    def __hash__(self) -> int:
        return id(self.membership)


@lru_cache(maxsize=2)
def _layouts(same: _Same) -> tuple[Layout, ...]:
    _check_addresses(same.membership.pools)
    return tuple(Layout(pool) for pool in same.membership.pools)


def _check_addresses(pools: Iterable[Pool]) -> None:
    seen: dict[str, str] = {}
    for pool in pools:
        for endpoint in pool.endpoints:
            if endpoint.address in seen:
                where = f"{seen[endpoint.address]!r} and {pool.name!r}"
                raise SnapshotError(f"address {endpoint.address!r} stands twice: in {where}")
            seen[endpoint.address] = pool.name


def _without_panic(pool: Pool, unhealthy: frozenset[str], draining: frozenset[str]) -> Pool:
    """Leave out who drains where Envoy would otherwise count too few as healthy, and may try everybody.

    A request that an endpoint has begun goes on when it is left out. Without peers Envoy may try those who
    drain: nobody else is there.
    """
    if not draining:
        return pool
    staying = tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in draining)
    if not staying or len(staying) == len(pool.endpoints):
        return pool
    healthy = sum(endpoint.address not in unhealthy for endpoint in staying)
    return pool if healthy >= _HEALTHY_SHARE * len(pool.endpoints) else Pool(pool.name, staying)


def _mean_weight(addresses: Iterable[str], weights: Mapping[str, int]) -> int:
    known = [weights[address] for address in addresses if address in weights]
    return round(sum(known) / len(known)) if known else MIN_WEIGHT
