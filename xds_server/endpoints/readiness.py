"""Whether admitted endpoints are still ready: a state machine for each, with time as an argument. Pure.

    READY --- a suspicion ---------------------------------------------> SUSPECT
    READY, SUSPECT --- its port refuses, and a probe has passed before -> NOT_READY
    SUSPECT --- the probe fails ---------------------------------------> NOT_READY
    SUSPECT, NOT_READY --- the probe passes, or is SILENT -------------> READY
    NOT_READY --- three clients get good answers all the same ---------> READY, and its probe is disregarded

A sign of a restart or a fault raises the suspicion: the counters restart from zero, the metrics page is a 5xx
answer, or a client gets a 5xx answer or no connection. A SUSPECT endpoint is served until its probe has
ended, which takes milliseconds; so a restart costs one or two clients' requests. The signal `ready` marks a
NOT_READY one, which keeps new requests away as long as its pool has others: probes, not clients, test an
engine that fails.

A probe must not lock out an engine that serves. So a probe without a connection, or without a whole answer,
changes nothing (`signals/passive/reach.py` decides whether a missing connection counts). As long as no probe
has passed yet (the engine may speak HTTP/2 only), a refused connection only raises suspicion, and an answer
that shows nothing ends it. If requests reach a NOT_READY endpoint all the same (its pool has no better one)
and it answers three of them well, all begun after the result, its probe is disregarded. It is still probed,
and counts again once it passes. Probes have no effect in a pool in which none counts and passes: otherwise
the first engine whose probe is disregarded would get the requests of all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xds_server.endpoints.gate import ProbeResult
from xds_server.signals.passive.reach import BEGUN_LATER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fleet.endpoint import Endpoint

GOOD_ANSWERS: Final = 3
"""To clients, until an engine's failing probe is disregarded."""
SETTLED_SECONDS: Final = 1.0
"""After a suspicion ends, signs are ignored for this time: they began before, or repeat at each fault."""


@dataclass(slots=True)
class _Suspicion:
    ready: bool = True
    """True: SUSPECT; False: NOT_READY."""
    since: float = 0.0
    """When it became NOT_READY."""
    answered_well: int = 0


class Readiness:
    """All admitted endpoints. `now` in seconds, never earlier than before."""

    def __init__(self) -> None:
        self._suspicions: dict[str, _Suspicion] = {}
        self._settled_at: dict[str, float] = {}
        self._passed: set[str] = set()
        """Addresses with a READY or SILENT result."""
        self._disregarded: set[str] = set()
        """Addresses whose probe fails although they serve."""

    def passed(self, address: str) -> None:
        """Record that a probe has passed."""
        self._passed.add(address)
        self._disregarded.discard(address)

    def suspect(self, address: str, now: float, *, refused: bool = False) -> bool:
        """Take a sign of a restart or a fault; returns whether to probe the endpoint from now on.

        `refused`: its port refuses connections.
        """
        recent = now - self._settled_at.get(address, -SETTLED_SECONDS) < SETTLED_SECONDS
        suspicion = self._suspicions.get(address)
        no = refused and address in self._passed - self._disregarded
        if no and (suspicion is None or suspicion.ready):
            self._suspicions[address] = _Suspicion(ready=False, since=now)
            return True
        if suspicion is not None or recent:
            return False
        self._suspicions[address] = _Suspicion()
        return True

    def record(self, address: str, result: ProbeResult, now: float) -> bool:
        """Record a probe's result; returns whether the ready endpoints have changed."""
        suspicion = self._suspicions.get(address)
        passes = result in {ProbeResult.READY, ProbeResult.SILENT}
        if passes:
            self.passed(address)
        if suspicion is None:
            return False
        if passes:
            return self._settle(address, now)
        refuses = result is ProbeResult.NOT_READY
        if address in self._disregarded if refuses else address not in self._passed:
            return self._settle(address, now)
        if refuses and suspicion.ready:
            suspicion.ready, suspicion.since = False, now
            return True
        return False

    def answered(self, address: str, took_seconds: float | None, now: float) -> bool:
        """Record a client's good answer; returns whether the ready endpoints have changed.

        Without a duration the begin of the request is unknown, so the answer proves nothing.
        """
        suspicion = self._suspicions.get(address)
        if suspicion is None or suspicion.ready or took_seconds is None:
            return False
        if now - took_seconds < suspicion.since + BEGUN_LATER_SECONDS:
            return False
        suspicion.answered_well += 1
        if suspicion.answered_well < GOOD_ANSWERS:
            return False
        self._disregarded.add(address)
        return self._settle(address, now)

    def suspects(self) -> frozenset[str]:
        """Addresses to probe: SUSPECT and NOT_READY ones, and those whose probe is disregarded."""
        return frozenset(self._suspicions) | self._disregarded

    def not_ready(self) -> frozenset[str]:
        """Addresses whose probe has failed."""
        return frozenset(address for address, suspicion in self._suspicions.items() if not suspicion.ready)

    def kept_out(self, admitted: Iterable[Endpoint]) -> frozenset[str]:
        """The admitted addresses that get no new requests: not ready, while others in their pool are."""
        not_ready = self.not_ready()
        if not not_ready:
            return not_ready
        endpoints = list(admitted)
        failing = not_ready | self._disregarded
        passing = {endpoint.pool for endpoint in endpoints if endpoint.address not in failing}
        return not_ready & {endpoint.address for endpoint in endpoints if endpoint.pool in passing}

    def keep(self, addresses: Collection[str]) -> None:
        """Forget all other addresses."""
        for records in (self._suspicions, self._settled_at):
            for address in records.keys() - set(addresses):
                del records[address]
        self._passed.intersection_update(addresses)
        self._disregarded.intersection_update(addresses)

    def _settle(self, address: str, now: float) -> bool:
        """End a suspicion; returns whether the endpoint was NOT_READY."""
        self._settled_at[address] = now
        return not self._suspicions.pop(address).ready
