"""Whether an engine's port gives connections: what this process finds, unless Envoys know better. Pure.

A port that refuses is unreachable at once. One that gives no connection (none in time, or no route) is
unreachable after two tries in a row, unless the cause is this process' own network. So it does not count

- while an Envoy has had an answer there lately, or to a request that began after the first of these tries;
- while no port of the pool gives this process a connection, and all went at once.

An Envoy that could not connect, later than any answer there, ends both exceptions for some seconds. What
does not count is unknown: neutral.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from xds_server.access_log.finished import HOST_FLAGS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from xds_server.access_log.finished import Finished

TRIES: Final = 2
"""In a row without a connection: packets may be lost, and of an engine that is slow to accept one comes
later."""
BEGUN_LATER_SECONDS: Final = 2.0
"""An entry of an access log is at most this old, so its request began later than this before the entry."""
AT_ONCE_SECONDS: Final = 10.0
"""Ports of a pool whose first try without a connection lies within this time went at once."""
FAILED_SECONDS: Final = 10.0
"""How long a connection that an Envoy did not get counts."""
_CONNECTION_FAILED: Final = "UF"


@dataclass(slots=True)
class _Port:
    pool: str
    contact: bool = False
    """Whether the newest try got a connection, or was refused one."""
    refused: bool = False
    tries: int = 0
    """In a row without a connection; an unclear try ends the row."""
    since: float = inf
    """When the first of them had failed."""
    at: float = -inf
    """When the newest had."""
    answered_at: float = -inf
    failed_at: float = -inf
    """When access logs had an answer, and a connection that failed."""
    answered_since: bool = False
    """Whether a request that began after `since` was answered."""


class Reach:
    """All endpoints. `now` in seconds, never earlier than before."""

    def __init__(self) -> None:
        self._ports: dict[str, _Port] = {}
        self._without: set[str] = set()
        """Whose newest try got no connection."""
        self._unscraped: frozenset[str] = frozenset()
        self._contacts: Counter[str] = Counter()
        self._latest: dict[str, float] = {}
        """By pool: when the last of those without a connection went."""

    def keep(self, pools: Mapping[str, str], unscraped: Collection[str] = ()) -> None:
        """Follow these addresses, each with its pool, and forget all others.

        Of those in `unscraped` the metrics page is elsewhere, so that only probes try their ports.
        """
        self._unscraped = frozenset(unscraped)
        for address in [a for a, port in self._ports.items() if pools.get(a) != port.pool]:
            self._end(address)
            del self._ports[address]
        for address, pool in pools.items():
            if address not in self._ports:
                self._ports[address] = _Port(pool)
        self._latest = {pool: at for pool, at in self._latest.items() if pool in set(pools.values())}

    def connected(self, address: str) -> None:
        """Take a try that got a connection."""
        if port := self._end(address):
            self._meet(port)

    def unclear(self, address: str) -> None:
        """Take a try that says nothing about the port."""
        self._end(address)

    def missed(self, address: str, now: float, *, refused: bool = False) -> None:
        """Take a try that got no connection: it was refused, or nobody answered."""
        port = self._ports.get(address)
        if port is None:
            return
        if not port.tries or (port.refused and not refused):
            port = self._end(address) or port
            port.since, port.answered_since = now, False
            self._latest[port.pool] = now
        port.tries, port.at, port.refused = port.tries + 1, now, refused
        self._without.add(address)
        if refused and not port.contact:
            self._meet(port)

    def probed(self, address: str, now: float, *, connected: bool) -> None:
        """Take a probe; after an answer there are no more probes, so a connection is no lasting contact."""
        if address in self._unscraped:
            if connected:
                self._end(address)
            else:
                self.missed(address, now)

    def note(self, finished: Finished, now: float) -> None:
        """Take a client's request that an Envoy has finished."""
        port = self._ports.get(finished.address)
        if port is None:
            return
        if finished.first_byte_seconds is None:
            if _CONNECTION_FAILED in finished.flags:
                port.failed_at = now
        elif HOST_FLAGS.isdisjoint(finished.flags):
            port.answered_at = now
            took = finished.duration_seconds
            if took is not None and now - took >= port.since + BEGUN_LATER_SECONDS:
                port.answered_since = True

    def answered(self, address: str) -> bool:
        """Whether an Envoy has had an answer there."""
        port = self._ports.get(address)
        return port is not None and port.answered_at > -inf

    def away_at(self, address: str, now: float) -> float | None:
        """Return when an unreachable endpoint was tried last; None: it is reachable, or that is unknown."""
        port = self._ports.get(address)
        if port is None or not port.tries:
            return None
        failed = port.failed_at > port.answered_at and now - port.failed_at < FAILED_SECONDS
        if port.answered_since and not failed:
            return None
        if not port.refused:
            lately = now - port.answered_at < BEGUN_LATER_SECONDS
            ours = not self._contacts[port.pool] and (
                port.since >= self._latest.get(port.pool, -inf) - AT_ONCE_SECONDS
            )
            if port.tries < TRIES or ((lately or ours) and not failed):
                return None
        return port.at

    def away(self, now: float) -> dict[str, float]:
        """Return the unreachable endpoints, and when each was tried last."""
        tried = ((address, self.away_at(address, now)) for address in self._without)
        return {address: at for address, at in tried if at is not None}

    def _meet(self, port: _Port) -> None:
        port.contact = True
        self._contacts[port.pool] += 1

    def _end(self, address: str) -> _Port | None:
        """End the row of tries and the contact."""
        port = self._ports.get(address)
        if port is not None:
            self._contacts[port.pool] -= port.contact
            port.contact, port.refused, port.tries, port.since = False, False, 0, inf
            self._without.discard(address)
        return port
