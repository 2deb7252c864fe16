"""Who is served: a state machine for each endpoint, on time that comes in as an argument.

PROBING -> ADMITTED -> LEAVING -> gone. An endpoint that leaves while it was never served is gone at once.
Whether one that is ADMITTED is still ready says `readiness.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from fleet.endpoint import Endpoint, Pool
from xds_server.endpoints.fitness import left_out

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from fleet.settings import JoiningSettings

BLINK_SECONDS: Final = 30.0
"""An endpoint that was away no longer comes back as if it had not been; later it is a new one."""
SILENT_ANSWERS: Final = 3
"""An engine that refuses to tell this many times in a row is let in."""


class State(Enum):
    """Where an endpoint stands."""

    PROBING = "probing"
    ADMITTED = "admitted"
    LEAVING = "leaving"


class Verdict(Enum):
    """What a probe came to."""

    READY = "ready"
    NOT_READY = "not_ready"
    """A clear no: refused, an error answer, other models."""
    SILENT = "silent"
    """The engine answers and does not say: no such path, but a known engine's page or no models to ask for;
    or a key is wanted."""
    UNKNOWN = "unknown"
    """No answer in time, or the connection broke."""
    NO_CONNECTION = "no_connection"
    """None was made in time, or there is no route."""


@dataclass(slots=True)
class _Held:
    endpoint: Endpoint
    state: State
    admitted: bool = False
    """Whether it ever was ADMITTED."""
    ramp_since: float | None = None
    left_at: float = 0.0
    silent: int = 0
    refused: bool = False
    """Whether the newest probe said no; while PROBING only."""


class Gate:
    """All endpoints of all pools."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._pools: tuple[Pool, ...] = ()
        self._joining: Mapping[str, JoiningSettings] = {}
        self._presumed: set[str] = set()
        """Taken as good until a first probe says otherwise."""
        self._ramping: set[str] = set()
        self._leaving: set[str] = set()
        self._unfit: frozenset[str] = frozenset()
        """Who would not serve, by what is known beside probes of newcomers."""

    def update(
        self,
        pools: tuple[Pool, ...],
        joining: Mapping[str, JoiningSettings],
        now: float,
        *,
        presumed: Collection[str] = (),
        trusted: Collection[str] = (),
    ) -> None:
        """Take who is found, as a whole; an address stands in one pool only.

        Addresses in `presumed` that are new here are served until a first probe says no, and come in without
        slow start; those in `trusted` come in at once. Both keep a restart of ours from moving traffic.
        """
        served = self._served_addresses()
        found = {endpoint.address: endpoint for pool in pools for endpoint in pool.endpoints}
        self._pools, self._joining = pools, joining
        for address in [address for address in self._held if address not in found]:
            self._leave(address, now, served)
        for address, endpoint in found.items():
            held = self._held.get(address)
            if held is not None and held.endpoint.pool != endpoint.pool:
                self._drop(address)
                held = None
            if held is None:
                self._join(endpoint, now, presumed=address in presumed, trusted=address in trusted)
            else:
                held.endpoint = endpoint
                self._stay(held, now)
        self.advance(now)

    def heard(self, address: str, verdict: Verdict, now: float) -> bool:
        """Take a probe's verdict; returns whether who is served may have changed."""
        held = self._held.get(address)
        if held is None or held.state is not State.PROBING:
            return False
        held.silent = held.silent + 1 if verdict is Verdict.SILENT else 0
        held.refused = verdict is Verdict.NOT_READY
        presumed = self._unpresume(address)
        if verdict is Verdict.READY or (verdict is Verdict.SILENT and held.silent >= SILENT_ANSWERS):
            self._admit(held, now, ramp=not presumed)
        elif presumed and verdict is not Verdict.NOT_READY:
            self._admit(held, now, ramp=False)
        elif not presumed:
            return False
        return True

    def advance(self, now: float) -> bool:
        """Let go of those whose time to drain is over; returns whether there were any."""
        over = [address for address in self._leaving if now >= self._drained_at(self._held[address])]
        for address in over:
            self._drop(address)
        return bool(over)

    def judge(self, unfit: frozenset[str]) -> bool:
        """Take who would not serve; returns whether who is served may have changed."""
        changed, self._unfit = unfit != self._unfit, unfit
        return changed and any(held.state is State.PROBING for held in self._held.values())

    def serving(self) -> tuple[Pool, ...]:
        """Each pool with those who are let in, then those who leave.

        While nobody of a pool who is let in would serve, everybody who is found is served.
        """
        leaving: dict[str, list[Endpoint]] = {}
        for address in sorted(self._leaving):
            endpoint = self._held[address].endpoint
            leaving.setdefault(endpoint.pool, []).append(endpoint)
        return tuple(
            Pool(pool.name, (*self._served(pool), *leaving.get(pool.name, ()))) for pool in self._pools
        )

    def leaving(self) -> frozenset[str]:
        """Addresses that stay for what they have begun and get nothing new."""
        return frozenset(self._leaving)

    def ramp(self, now: float) -> dict[str, float]:
        """Address to the factor of its weight, for those who are still below 1."""
        factors = {}
        for address in list(self._ramping):
            held = self._held[address]
            joining = self._joining.get(held.endpoint.pool)
            factor = 1.0 if joining is None else _factor(held, joining, now)
            if factor < 1.0:
                factors[address] = factor
            else:
                self._ramping.discard(address)
        return factors

    def probing(self) -> list[Endpoint]:
        """Those whose model has yet to answer."""
        return [held.endpoint for held in self._held.values() if held.state is State.PROBING]

    def refused(self) -> frozenset[str]:
        """Those of them whose newest probe said no."""
        return frozenset(
            address for address, held in self._held.items() if held.refused and held.state is State.PROBING
        )

    def is_probing(self, address: str) -> bool:
        """Whether an endpoint's model has yet to answer."""
        held = self._held.get(address)
        return held is not None and held.state is State.PROBING

    def admitted(self, address: str) -> Endpoint | None:
        """Return an endpoint that was let in and stays; None for any other."""
        held = self._held.get(address)
        return held.endpoint if held is not None and held.state is State.ADMITTED else None

    def untried(self) -> bool:
        """Whether somebody is still taken as good without a probe's word."""
        return bool(self._presumed)

    def let_in(self) -> Iterator[Endpoint]:
        """Those that were let in and do not leave."""
        return (held.endpoint for held in self._held.values() if held.state is State.ADMITTED)

    def standing(self) -> list[tuple[Endpoint, State]]:
        """Everybody, served or not."""
        return [(held.endpoint, held.state) for held in self._held.values()]

    def counts(self) -> dict[State, int]:
        """How many stand where."""
        counts = dict.fromkeys(State, 0)
        for held in self._held.values():
            counts[held.state] += 1
        return counts

    def _served(self, pool: Pool) -> tuple[Endpoint, ...]:
        waiting = frozenset(e.address for e in pool.endpoints if not self._is_in(e.address))
        out = left_out((pool,), waiting, self._unfit)
        return tuple(endpoint for endpoint in pool.endpoints if endpoint.address not in out)

    def _served_addresses(self) -> frozenset[str]:
        return frozenset(endpoint.address for pool in self._pools for endpoint in self._served(pool))

    def _is_in(self, address: str) -> bool:
        held = self._held[address]
        return held.state is State.ADMITTED or address in self._presumed

    def _join(self, endpoint: Endpoint, now: float, *, presumed: bool, trusted: bool) -> None:
        held = self._held[endpoint.address] = _Held(endpoint, State.PROBING)
        if not trusted and self._joining[endpoint.pool].probe != "none":
            if presumed:
                self._presumed.add(endpoint.address)
        else:
            self._admit(held, now, ramp=not (trusted or presumed))

    def _stay(self, held: _Held, now: float) -> None:
        if held.state is State.LEAVING:
            self._leaving.discard(held.endpoint.address)
            if held.admitted and now - held.left_at <= BLINK_SECONDS:
                held.state = State.ADMITTED
            else:
                held.state, held.silent, held.admitted = State.PROBING, 0, False
                self._ramping.discard(held.endpoint.address)
        if held.state is State.PROBING and self._joining[held.endpoint.pool].probe == "none":
            self._admit(held, now, ramp=not self._unpresume(held.endpoint.address))

    def _admit(self, held: _Held, now: float, *, ramp: bool) -> None:
        held.state, held.admitted = State.ADMITTED, True
        held.ramp_since = now if ramp else None
        if ramp:
            self._ramping.add(held.endpoint.address)

    def _leave(self, address: str, now: float, served: Collection[str]) -> None:
        held = self._held[address]
        if held.endpoint.pool not in self._joining or (
            held.state is not State.LEAVING and address not in served
        ):
            self._drop(address)
        elif held.state is not State.LEAVING:
            held.state, held.left_at = State.LEAVING, now
            self._presumed.discard(address)
            self._leaving.add(address)

    def _drained_at(self, held: _Held) -> float:
        joining = self._joining.get(held.endpoint.pool)
        return held.left_at + (joining.drain_seconds if joining is not None else 0.0)

    def _unpresume(self, address: str) -> bool:
        if address not in self._presumed:
            return False
        self._presumed.discard(address)
        return True

    def _drop(self, address: str) -> None:
        self._presumed.discard(address)
        self._ramping.discard(address)
        self._leaving.discard(address)
        del self._held[address]


def _factor(held: _Held, joining: JoiningSettings, now: float) -> float:
    if held.ramp_since is None or joining.slow_start_seconds <= 0:
        return 1.0
    share = min(1.0, max(0.0, (now - held.ramp_since) / joining.slow_start_seconds))
    return joining.slow_start_from + (1.0 - joining.slow_start_from) * share
