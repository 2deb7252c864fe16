"""Whether those that were let in are still ready: a state machine for each, time as an argument. Pure.

    READY --- a doubt ------------------------------------------------> DOUBTED
    READY, DOUBTED --- its port refuses, and a probe has passed once -> NOT_READY
    DOUBTED --- the probe says no; or twice in a row no connection ---> NOT_READY
    DOUBTED, NOT_READY --- the probe passes, or the engine refuses to tell ---> READY
    NOT_READY --- three clients are answered well all the same -------> READY, and its probe is not believed

A doubt is a sign of a restart or a fault: the counters have begun anew, the metrics page is a 5xx answer, a
client got a 5xx answer or no connection. A DOUBTED endpoint is served until its probe
has spoken, which takes milliseconds; so a restart costs one or two clients' requests. A NOT_READY one is told
as such by the signal `ready`, which keeps new requests away as long as its pool has others: an engine that
fails is tried with probes, not with clients.

A probe must not lock out an engine that serves. So one that gets no connection, or no whole answer, says
nothing (whether no connection counts is decided in `signals/reach.py`). Where no probe has passed yet (the
engine may speak HTTP/2 only), a refused connection is only a doubt, and an answer that tells nothing ends it.
And where requests reach a NOT_READY one all the same (its pool has nobody better) and it answers three of
them well, all begun after the verdict, its probe is not believed any more. It goes on being probed, and is
believed again once its probe passes. In a pool in which no probe is believed and passes, none says anything:
otherwise the first engine that is not believed would get what all others got.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xds_server.endpoints.gate import Verdict
from xds_server.signals.passive.reach import BEGUN_LATER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fleet.endpoint import Endpoint

GOOD_ANSWERS: Final = 3
"""To clients, until an engine's probe is not believed."""
SETTLED_SECONDS: Final = 1.0
"""Doubts so soon after the end of another are of before it, or would ask again with every fault."""


@dataclass(slots=True)
class _Doubt:
    ready: bool = True
    """Whether it is served: True in DOUBTED."""
    since: float = 0.0
    """When it was found not ready."""
    answered_well: int = 0


class Readiness:
    """All endpoints that were let in. `now` in seconds, never earlier than before."""

    def __init__(self) -> None:
        self._doubts: dict[str, _Doubt] = {}
        self._settled_at: dict[str, float] = {}
        self._passed: set[str] = set()
        """Who has passed a probe, or refused to tell."""
        self._disbelieved: set[str] = set()
        """Whose probe says no although they serve."""

    def passed(self, address: str) -> None:
        """Note that a probe let this one in."""
        self._passed.add(address)
        self._disbelieved.discard(address)

    def doubt(self, address: str, now: float, *, refused: bool = False) -> bool:
        """Take a sign of a restart or a fault; returns whether the endpoint is to be probed from now on.

        With `refused` nobody listened there.
        """
        recent = now - self._settled_at.get(address, -SETTLED_SECONDS) < SETTLED_SECONDS
        known = self._doubts.get(address)
        no = refused and address in self._passed - self._disbelieved
        if no and (known is None or known.ready):
            self._doubts[address] = _Doubt(ready=False, since=now)
            return True
        if known is not None or recent:
            return False
        self._doubts[address] = _Doubt()
        return True

    def heard(self, address: str, verdict: Verdict, now: float) -> bool:
        """Take a probe's verdict; returns whether who is ready has changed."""
        doubt = self._doubts.get(address)
        passes = verdict in {Verdict.READY, Verdict.SILENT}
        if passes:
            self.passed(address)
        if doubt is None:
            return False
        if passes:
            return self._settle(address, now)
        refuses = verdict is Verdict.NOT_READY
        if address in self._disbelieved if refuses else address not in self._passed:
            return self._settle(address, now)
        if refuses and doubt.ready:
            doubt.ready, doubt.since = False, now
            return True
        return False

    def answered(self, address: str, took_seconds: float | None, now: float) -> bool:
        """Take a client's good answer; returns whether who is ready has changed.

        When the request began tells how long it took: where that is unknown, the answer proves nothing.
        """
        doubt = self._doubts.get(address)
        if doubt is None or doubt.ready or took_seconds is None:
            return False
        if now - took_seconds < doubt.since + BEGUN_LATER_SECONDS:
            return False
        doubt.answered_well += 1
        if doubt.answered_well < GOOD_ANSWERS:
            return False
        self._disbelieved.add(address)
        return self._settle(address, now)

    def in_doubt(self) -> frozenset[str]:
        """Who is to be probed: those in doubt, and those whose probe is not believed."""
        return frozenset(self._doubts) | self._disbelieved

    def not_ready(self) -> frozenset[str]:
        """Whose probe has said no."""
        return frozenset(address for address, doubt in self._doubts.items() if not doubt.ready)

    def kept_out(self, admitted: Iterable[Endpoint]) -> frozenset[str]:
        """Who is to get nothing new, of those that were let in: another one's probe passes in their pool."""
        not_ready = self.not_ready()
        if not not_ready:
            return not_ready
        there = list(admitted)
        failing = not_ready | self._disbelieved
        passing = {endpoint.pool for endpoint in there if endpoint.address not in failing}
        return not_ready & {endpoint.address for endpoint in there if endpoint.pool in passing}

    def keep(self, addresses: Collection[str]) -> None:
        """Forget everybody else."""
        for held in (self._doubts, self._settled_at):
            for address in held.keys() - set(addresses):
                del held[address]
        self._passed.intersection_update(addresses)
        self._disbelieved.intersection_update(addresses)

    def _settle(self, address: str, now: float) -> bool:
        """End a doubt; returns whether the endpoint was not ready."""
        self._settled_at[address] = now
        return not self._doubts.pop(address).ready
