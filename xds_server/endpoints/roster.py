"""Who is served at one moment, from what is known: unknown is not empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.endpoint import Membership, Pool

if TYPE_CHECKING:
    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class Roster:
    """Every pool of the settings in force, each of them known."""

    settings: Settings
    """The newest settings of whose pools each is known, or was served before."""
    membership: Membership
    """Who Envoys are told of."""
    active: Membership
    """Who gets new requests: who is weighed and picked."""
    leaving: frozenset[str]
    """The others: they finish what they have begun."""


def assemble(
    settings: Settings,
    membership: Membership,
    leaving: frozenset[str],
    unknown: frozenset[str],
    before: Roster | None,
) -> Roster | None:
    """Make the roster; `before` itself when nothing differs, None while there is none that could be served.

    A pool of which nothing is known keeps whom it had. One that never had anybody keeps the settings from
    before in force, so that a new pool whose source is broken holds up no other pool.
    """
    told = {pool.name: pool for pool in membership.pools if pool.name not in unknown}
    kept = {pool.name: pool for pool in before.active.pools} if before is not None else {}
    if before is not None and any(pool.name not in told.keys() | kept.keys() for pool in settings.pools):
        settings = before.settings
    names = [pool.name for pool in settings.pools]
    if any(name not in told and name not in kept for name in names):
        return None
    taken = {endpoint.address for name in names if name in told for endpoint in told[name].endpoints}
    pools = tuple(told[name] if name in told else _without(kept[name], taken) for name in names)
    leaving = leaving & taken
    if (
        before is not None
        and before.settings is settings
        and before.membership.pools == pools
        and before.leaving == leaving
    ):
        return before
    whole = Membership(pools)
    active = Membership(tuple(_without(pool, leaving) for pool in pools)) if leaving else whole
    if before is not None:
        # The same object as long as nobody comes or goes: others compare by identity.
        whole = before.membership if before.membership == whole else whole
        active = before.active if before.active == active else active
    return Roster(settings, whole, active, leaving)


def _without(pool: Pool, addresses: frozenset[str] | set[str]) -> Pool:
    kept = tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in addresses)
    return pool if len(kept) == len(pool.endpoints) else Pool(pool.name, kept)
