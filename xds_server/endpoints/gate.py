"""Which endpoints are served: a state machine for each, with time as an argument.

PROBING -> ADMITTED -> LEAVING -> gone. An endpoint that was never served is gone at once when it leaves.
`readiness.py` decides whether an ADMITTED one is still ready.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from fleet.endpoint import Endpoint, Pool
from xds_server.endpoints.fitness import exclusions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from fleet.settings import JoiningSettings

BLINK_SECONDS: Final = 30.0
"""An endpoint that comes back within this time keeps its state; later it is a new one."""
SILENT_ANSWERS: Final = 3
"""An engine with this many SILENT results in a row is admitted."""
MISSES: Final = 2
"""Probes in a row without a connection that keep out an endpoint of the first result, if a peer is well
meanwhile. The last of them began after the peer was, so that a network that came up late is not the cause."""


class State(Enum):
    """The state of an endpoint."""

    PROBING = "probing"
    ADMITTED = "admitted"
    LEAVING = "leaving"


class ProbeResult(Enum):
    """The result of a probe."""

    READY = "ready"
    NOT_READY = "not_ready"
    """A clear failure: connection refused, an error answer, other models."""
    SILENT = "silent"
    """The engine answers without showing its models: it wants a key, or has no such path but a supported
    engine's page or no models in the settings."""
    UNKNOWN = "unknown"
    """No answer in time, or the connection broke."""
    NO_CONNECTION = "no_connection"
    """No connection came about in time, or there is no route."""


@dataclass(slots=True)
class _Entry:
    endpoint: Endpoint
    state: State
    admitted: bool = False
    """Whether it has been ADMITTED."""
    ramp_since: float | None = None
    left_at: float = 0.0
    silent: int = 0
    refused: bool = False
    """Whether the newest probe failed; while PROBING only."""
    misses: int | None = None
    """Probes in a row without a connection while a peer was well; None: there was no probe yet."""


class Gate:
    """All endpoints of all pools."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._pools: tuple[Pool, ...] = ()
        self._joining: Mapping[str, JoiningSettings] = {}
        self._presumed: set[str] = set()
        """Addresses that are served until a first probe fails."""
        self._ramping: set[str] = set()
        self._leaving: set[str] = set()
        self._unfit: frozenset[str] = frozenset()
        """Addresses that would not serve, apart from the probes of new endpoints."""

    def update(
        self,
        pools: tuple[Pool, ...],
        joining: Mapping[str, JoiningSettings],
        now: float,
        *,
        presumed: Collection[str] = (),
        trusted: Collection[str] = (),
    ) -> None:
        """Take all discovered endpoints; an address is in one pool only.

        New addresses in `presumed` are served until a first probe fails, and are admitted without slow start
        by the first probe that reaches them; those in `trusted` are admitted at once. So a restart of ours
        does not move traffic.
        """
        served = self._served_addresses()
        endpoints = {endpoint.address: endpoint for pool in pools for endpoint in pool.endpoints}
        self._pools, self._joining = pools, joining
        for address in [address for address in self._entries if address not in endpoints]:
            self._leave(address, now, served)
        for address, endpoint in endpoints.items():
            entry = self._entries.get(address)
            if entry is not None and entry.endpoint.pool != endpoint.pool:
                self._drop(address)
                entry = None
            if entry is None:
                self._join(endpoint, now, presumed=address in presumed, trusted=address in trusted)
            else:
                entry.endpoint = endpoint
                self._stay(entry, now)
        self.advance(now)

    def record(self, address: str, result: ProbeResult, now: float) -> bool:
        """Record a probe's result; returns whether the served endpoints may have changed."""
        entry = self._entries.get(address)
        if entry is None or entry.state is not State.PROBING:
            return False
        entry.silent = entry.silent + 1 if result is ProbeResult.SILENT else 0
        entry.refused = result is ProbeResult.NOT_READY
        missed = result is ProbeResult.NO_CONNECTION and self._has_well_peer(entry.endpoint)
        first, entry.misses = entry.misses is None, (entry.misses or 0) + 1 if missed else 0
        if result is ProbeResult.NO_CONNECTION and entry.misses < MISSES:
            return first and address in self._presumed
        presumed = self._unpresume(address)
        if result is ProbeResult.READY or (result is ProbeResult.SILENT and entry.silent >= SILENT_ANSWERS):
            self._admit(entry, now, ramp=not presumed)
        elif presumed and result not in {ProbeResult.NOT_READY, ProbeResult.NO_CONNECTION}:
            self._admit(entry, now, ramp=False)
        elif not presumed:
            return False
        return True

    def advance(self, now: float) -> bool:
        """Remove the endpoints whose time to drain is over; returns whether there were any."""
        over = [address for address in self._leaving if now >= self._drained_at(self._entries[address])]
        for address in over:
            self._drop(address)
        return bool(over)

    def judge(self, unfit: frozenset[str]) -> bool:
        """Take the addresses that would not serve; returns whether the served ones may have changed."""
        changed, self._unfit = unfit != self._unfit, unfit
        return changed and any(entry.state is State.PROBING for entry in self._entries.values())

    def serving(self) -> tuple[Pool, ...]:
        """Each pool with its admitted endpoints, then its leaving ones.

        While no admitted endpoint of a pool would serve, all discovered ones are served.
        """
        leaving: dict[str, list[Endpoint]] = {}
        for address in sorted(self._leaving):
            endpoint = self._entries[address].endpoint
            leaving.setdefault(endpoint.pool, []).append(endpoint)
        return tuple(
            Pool(pool.name, (*self._served(pool), *leaving.get(pool.name, ()))) for pool in self._pools
        )

    def leaving(self) -> frozenset[str]:
        """Addresses that finish their requests and get no new ones."""
        return frozenset(self._leaving)

    def ramp(self, now: float) -> dict[str, float]:
        """Address to the factor of its weight, for endpoints below 1."""
        factors = {}
        for address in list(self._ramping):
            entry = self._entries[address]
            joining = self._joining.get(entry.endpoint.pool)
            factor = 1.0 if joining is None else _factor(entry, joining, now)
            if factor < 1.0:
                factors[address] = factor
            else:
                self._ramping.discard(address)
        return factors

    def probing(self) -> list[Endpoint]:
        """The endpoints that are not admitted yet."""
        return [entry.endpoint for entry in self._entries.values() if entry.state is State.PROBING]

    def refused(self) -> frozenset[str]:
        """Addresses of the endpoints in `probing` whose newest probe failed."""
        return frozenset(
            address
            for address, entry in self._entries.items()
            if entry.refused and entry.state is State.PROBING
        )

    def is_probing(self, address: str) -> bool:
        """Whether an endpoint is not admitted yet."""
        entry = self._entries.get(address)
        return entry is not None and entry.state is State.PROBING

    def admitted(self, address: str) -> Endpoint | None:
        """Return an admitted endpoint; None: its state is another one."""
        entry = self._entries.get(address)
        return entry.endpoint if entry is not None and entry.state is State.ADMITTED else None

    def untried(self) -> bool:
        """Whether any endpoint is served before its first probe has ended."""
        return any(self._entries[address].misses is None for address in self._presumed)

    def admitted_endpoints(self) -> Iterator[Endpoint]:
        """The admitted endpoints, without those that leave."""
        return (entry.endpoint for entry in self._entries.values() if entry.state is State.ADMITTED)

    def states(self) -> list[tuple[Endpoint, State]]:
        """All endpoints, served or not."""
        return [(entry.endpoint, entry.state) for entry in self._entries.values()]

    def counts(self) -> dict[State, int]:
        """Number of endpoints by state."""
        counts = dict.fromkeys(State, 0)
        for entry in self._entries.values():
            counts[entry.state] += 1
        return counts

    def _served(self, pool: Pool) -> tuple[Endpoint, ...]:
        waiting = frozenset(e.address for e in pool.endpoints if not self._is_in(e.address))
        out = exclusions((pool,), waiting, self._unfit)
        return tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in out)

    def _served_addresses(self) -> frozenset[str]:
        return frozenset(endpoint.address for pool in self._pools for endpoint in self._served(pool))

    def _is_in(self, address: str) -> bool:
        entry = self._entries[address]
        return entry.state is State.ADMITTED or address in self._presumed

    def _has_well_peer(self, endpoint: Endpoint) -> bool:
        return any(
            entry.state is State.ADMITTED and entry.endpoint.pool == endpoint.pool
            for address, entry in self._entries.items()
            if address not in self._unfit
        )

    def _join(self, endpoint: Endpoint, now: float, *, presumed: bool, trusted: bool) -> None:
        entry = self._entries[endpoint.address] = _Entry(endpoint, State.PROBING)
        if not trusted and self._joining[endpoint.pool].probe != "none":
            if presumed:
                self._presumed.add(endpoint.address)
        else:
            self._admit(entry, now, ramp=not (trusted or presumed))

    def _stay(self, entry: _Entry, now: float) -> None:
        if entry.state is State.LEAVING:
            self._leaving.discard(entry.endpoint.address)
            if entry.admitted and now - entry.left_at <= BLINK_SECONDS:
                entry.state = State.ADMITTED
            else:
                entry.state, entry.silent, entry.admitted = State.PROBING, 0, False
                self._ramping.discard(entry.endpoint.address)
        if entry.state is State.PROBING and self._joining[entry.endpoint.pool].probe == "none":
            self._admit(entry, now, ramp=not self._unpresume(entry.endpoint.address))

    def _admit(self, entry: _Entry, now: float, *, ramp: bool) -> None:
        entry.state, entry.admitted = State.ADMITTED, True
        entry.ramp_since = now if ramp else None
        if ramp:
            self._ramping.add(entry.endpoint.address)

    def _leave(self, address: str, now: float, served: Collection[str]) -> None:
        entry = self._entries[address]
        if entry.endpoint.pool not in self._joining or (
            entry.state is not State.LEAVING and address not in served
        ):
            self._drop(address)
        elif entry.state is not State.LEAVING:
            entry.state, entry.left_at = State.LEAVING, now
            self._presumed.discard(address)
            self._leaving.add(address)

    def _drained_at(self, entry: _Entry) -> float:
        joining = self._joining.get(entry.endpoint.pool)
        return entry.left_at + (joining.drain_seconds if joining is not None else 0.0)

    def _unpresume(self, address: str) -> bool:
        if address not in self._presumed:
            return False
        self._presumed.discard(address)
        return True

    def _drop(self, address: str) -> None:
        self._presumed.discard(address)
        self._ramping.discard(address)
        self._leaving.discard(address)
        del self._entries[address]


def _factor(entry: _Entry, joining: JoiningSettings, now: float) -> float:
    if entry.ramp_since is None or joining.slow_start_seconds <= 0:
        return 1.0
    share = min(1.0, max(0.0, (now - entry.ramp_since) / joining.slow_start_seconds))
    return joining.slow_start_from + (1.0 - joining.slow_start_from) * share
