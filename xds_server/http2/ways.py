"""Which pools that speak HTTP/2 go by HTTP/1.1, and with what of their requests. Pure.

Nobody is spoken to in a protocol that it is not known to speak, if the one of its pool's settings may do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Spoken(NamedTuple):
    """What is known of one engine."""

    bad: bool
    """Whether HTTP/2 is better not tried on it."""
    unknown: bool
    """Whether that is because nobody knows yet (`auto` begins with HTTP/1.1)."""
    http1: bool | None
    """Whether it speaks HTTP/1.1; None: not known."""


@dataclass(frozen=True, slots=True)
class Ways:
    """Pools whose requests go by HTTP/1.1; those of a set that is not theirs go by the pool's protocol."""

    moved: frozenset[str] = frozenset()
    """All requests."""
    fallback: frozenset[str] = frozenset()
    """What is no upgrade on the paths of upgrades: every engine is known to speak HTTP/1.1."""
    upgrades: frozenset[str] = frozenset()
    """Upgrades: some engine is known to speak HTTP/1.1 and none is known not to. One of which nothing is
    known changes nothing, because few engines take a WebSocket over HTTP/2."""
    held: frozenset[str] = frozenset()
    """These would be moved, but not all of their engines are known to speak HTTP/1.1."""


def ways(engines: Iterable[tuple[str, Spoken]]) -> Ways:
    """Decide for each pool from what is known of its engines."""
    pools: defaultdict[str, list[Spoken]] = defaultdict(list)
    for pool, spoken in engines:
        pools[pool].append(spoken)
    wanted = {pool for pool, held in pools.items() if any(one.bad for one in held)}
    moved = {pool for pool in wanted if all(map(_may_move, pools[pool]))}
    http1 = {pool: [one.http1 for one in held] for pool, held in pools.items()}
    fallback = {pool for pool, known in http1.items() if all(known)}
    upgrades = {pool for pool, known in http1.items() if True in known and False not in known}
    return Ways(
        frozenset(moved), frozenset(moved | fallback), frozenset(moved | upgrades), frozenset(wanted - moved)
    )


def _may_move(one: Spoken) -> bool:
    return bool(one.http1) or (one.unknown and one.http1 is None)
