"""Who is served at one moment, from what is known: unknown is not empty."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fleet.endpoint import Membership, Pool
from xds_server.endpoints.fitness import left_out

if TYPE_CHECKING:
    from fleet.settings import Settings


@dataclass(frozen=True, slots=True)
class Roster:
    """Who is served in the pools of the settings in force."""

    settings: Settings
    """The newest settings of whose pools each is known, was served before, or is unheard from the start."""
    membership: Membership
    """Who Envoys are told of."""
    active: Membership
    """Who gets new requests: who is weighed and picked."""
    leaving: frozenset[str]
    """The others, who leave, sleep or are drained by an operator: they finish what they have begun."""
    unheard: frozenset[str] = frozenset()
    """Pools of which nothing has been known since the start: they stand in no membership."""


def assemble(
    settings: Settings,
    membership: Membership,
    leaving: frozenset[str],
    unknown: frozenset[str],
    before: Roster | None,
    drained: frozenset[str] = frozenset(),
    unfit: frozenset[str] = frozenset(),
) -> Roster | None:
    """Make the roster; `before` itself when nothing differs, None while there is none that could be served.

    A pool of which nothing is known keeps whom it had. One that never had anybody holds up no other pool:
    a new one keeps the settings from before in force; one that is unknown from the start on is unheard, and
    its Envoys keep what an earlier xds_server told them.

    Those in `drained` leave too, unless only those in `unfit`, or nobody, of their pool would be left.
    """
    told = {pool.name: pool for pool in membership.pools if pool.name not in unknown}
    kept = {pool.name: pool for pool in before.active.pools} if before is not None else {}
    heard = told.keys() | kept.keys()
    if before is not None and any(pool.name not in heard | before.unheard for pool in settings.pools):
        settings = before.settings
    unheard = frozenset(pool.name for pool in settings.pools) - heard
    names = [pool.name for pool in settings.pools if pool.name in heard]
    if unheard and not names:
        return None
    taken = {endpoint.address for name in names if name in told for endpoint in told[name].endpoints}
    pools = tuple(told[name] if name in told else _without(kept[name], taken) for name in names)
    leaving = (leaving & taken) | left_out(pools, drained, unfit, leaving)
    if (
        before is not None
        and before.settings is settings
        and before.membership.pools == pools
        and before.leaving == leaving
        and before.unheard == unheard
    ):
        return before
    whole = Membership(pools)
    active = Membership(tuple(_without(pool, leaving) for pool in pools)) if leaving else whole
    if before is not None:
        # The same object as long as nobody comes or goes: others compare by identity.
        whole = before.membership if before.membership == whole else whole
        active = before.active if before.active == active else active
    return Roster(settings, whole, active, leaving, unheard)


def _without(pool: Pool, addresses: frozenset[str] | set[str]) -> Pool:
    kept = tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in addresses)
    return pool if len(kept) == len(pool.endpoints) else Pool(pool.name, kept)
