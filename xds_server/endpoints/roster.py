"""The endpoints that are served at one moment; unknown is not empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.endpoint import Membership, Pool
from xds_server.endpoints.fitness import exclusions

if TYPE_CHECKING:
    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class Roster:
    """The endpoints that are served in the pools of the settings in force."""

    settings: Settings
    """The newest settings whose pools are each discovered, served before, or undiscovered since the start."""
    membership: Membership
    """All endpoints that Envoys get."""
    active: Membership
    """The endpoints that get new requests: these are weighed and picked."""
    leaving: frozenset[str]
    """The other addresses: they leave, sleep or are drained by an operator, and finish their requests."""
    undiscovered: frozenset[str] = frozenset()
    """Pools without any discovered endpoints since the start: they are in no membership."""


def assemble(
    settings: Settings,
    membership: Membership,
    leaving: frozenset[str],
    unknown: frozenset[str],
    before: Roster | None,
    drained: frozenset[str] = frozenset(),
    unfit: frozenset[str] = frozenset(),
) -> Roster | None:
    """Make the roster; `before` itself when nothing differs, None while no pool can be served.

    A pool whose endpoints are unknown keeps those that it had. If it never had any, the other pools do not
    wait for it: a new pool keeps the settings from before in force, and a pool that is unknown since the
    start is undiscovered, so that its Envoys keep what an earlier xds_server sent them.

    Addresses in `drained` leave too, unless nobody in their pool, or only addresses in `unfit`, would stay.
    """
    discovered = {pool.name: pool for pool in membership.pools if pool.name not in unknown}
    earlier = {pool.name: pool for pool in before.active.pools} if before is not None else {}
    servable = discovered.keys() | earlier.keys()
    if before is not None and any(pool.name not in servable | before.undiscovered for pool in settings.pools):
        settings = before.settings
    undiscovered = frozenset(pool.name for pool in settings.pools) - servable
    names = [pool.name for pool in settings.pools if pool.name in servable]
    if undiscovered and not names:
        return None
    addresses = {
        endpoint.address for name in names if name in discovered for endpoint in discovered[name].endpoints
    }
    pools = tuple(
        discovered[name] if name in discovered else _without(earlier[name], addresses) for name in names
    )
    leaving = (leaving & addresses) | exclusions(pools, drained, unfit, leaving)
    if (
        before is not None
        and before.settings is settings
        and before.membership.pools == pools
        and before.leaving == leaving
        and before.undiscovered == undiscovered
    ):
        return before
    whole = Membership(pools)
    active = Membership(tuple(_without(pool, leaving) for pool in pools)) if leaving else whole
    if before is not None:
        # The same object as long as no endpoint comes or goes: others compare by identity.
        whole = before.membership if before.membership == whole else whole
        active = before.active if before.active == active else active
    return Roster(settings, whole, active, leaving, undiscovered)


def _without(pool: Pool, addresses: frozenset[str] | set[str]) -> Pool:
    kept = tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in addresses)
    return pool if len(kept) == len(pool.endpoints) else Pool(pool.name, kept)
