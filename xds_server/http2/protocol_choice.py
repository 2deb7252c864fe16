"""Which requests of a pool that speaks HTTP/2 go by HTTP/1.1. Pure.

A pool moves to another protocol only if its engines are known to speak that one, as long as the protocol of
its settings may work.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class EngineProtocols(NamedTuple):
    """The protocols of one engine, as far as they are known."""

    bad: bool
    """Whether requests should avoid its HTTP/2."""
    unknown: bool
    """Whether `bad` only says that its HTTP/2 is untested (`auto` begins with HTTP/1.1)."""
    http1: bool | None
    """Whether it speaks HTTP/1.1; None: unknown."""


@dataclass(frozen=True, slots=True)
class ProtocolChoice:
    """Pools whose requests go by HTTP/1.1, by kind of request; all others go by the pool's protocol."""

    moved: frozenset[str] = frozenset()
    """All requests."""
    fallback: frozenset[str] = frozenset()
    """Requests on the paths of upgrades that are no upgrade: every engine is known to speak HTTP/1.1."""
    upgrades: frozenset[str] = frozenset()
    """Upgrades: some engine is known to speak HTTP/1.1 and none is known not to. An engine whose HTTP/1.1 is
    unknown changes nothing, because few engines take a WebSocket over HTTP/2."""
    unmovable: frozenset[str] = frozenset()
    """Pools that should move, but not all of their engines are known to speak HTTP/1.1."""


def choose_protocols(engines: Iterable[tuple[str, EngineProtocols]]) -> ProtocolChoice:
    """Choose for each pool from the protocols of its engines, given as pairs of pool and protocols."""
    pools: defaultdict[str, list[EngineProtocols]] = defaultdict(list)
    for pool, protocols in engines:
        pools[pool].append(protocols)
    failing = {pool for pool, members in pools.items() if any(engine.bad for engine in members)}
    moved = {pool for pool in failing if all(map(_may_move, pools[pool]))}
    http1 = {pool: [engine.http1 for engine in members] for pool, members in pools.items()}
    fallback = {pool for pool, answers in http1.items() if all(answers)}
    upgrades = {pool for pool, answers in http1.items() if True in answers and False not in answers}
    return ProtocolChoice(
        frozenset(moved), frozenset(moved | fallback), frozenset(moved | upgrades), frozenset(failing - moved)
    )


def _may_move(engine: EngineProtocols) -> bool:
    return bool(engine.http1) or (engine.unknown and engine.http1 is None)
