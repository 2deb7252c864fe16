"""One replay: a trace, a policy and simulated engines on one virtual clock.

Five kinds of events happen, in the order of their times: requests arrive and go where the policy says,
engines give first tokens and end requests, clients leave, the policy's timers ring, and engines fail and
recover. The times of all are in a heap, so the loop goes from one event to the next; nothing waits.

Requests meet a fault as behind Envoy with Warmroute's default retries, which repeat nothing that an engine
may have begun: a refused connection is tried elsewhere, twice at most, and a request that is open at an
engine when that goes away fails.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from warmroute.replay.engine import Engine
from warmroute.simulator.model import EventKind, Handle, Request, State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from warmroute.replay.fault import Fault
    from warmroute.replay.policies.policy import Policy
    from warmroute.replay.trace import Trace, TraceRequest
    from warmroute.simulator.model import EngineConfig

ATTEMPTS: Final = 3
"""Of a request whose connections are refused."""
_FAULT: Final = 0
_TIMER: Final = 1
_ENGINE: Final = 2
_LEAVE: Final = 3
_IDLE_SECONDS: Final = 60.0
"""Of a fleet without requests, of which only the last half is replayed: pages and windows are at rest."""


class _Sent(NamedTuple):
    handle: Handle
    engine: int


class Outcome(NamedTuple):
    """The results by request, in the order of arrival. Times in seconds; NaN without a whole answer."""

    policy: str
    at: NDArray[np.float64]
    engine: NDArray[np.int64]
    ttft: NDArray[np.float64]
    e2e: NDArray[np.float64]
    alone: NDArray[np.float64]
    """Time to first token on an idle, cold replica; also without an answer."""
    tpot: NDArray[np.float64]
    """By output token after the first; NaN: there was one only."""
    prompt_tokens: NDArray[np.float64]
    cached_tokens: NDArray[np.float64]
    failed: NDArray[np.bool_]
    cancelled: NDArray[np.bool_]
    """Whether the client left before the end."""
    busy_seconds: NDArray[np.float64]
    """By engine: seconds in which a step ran."""
    engine_tokens: NDArray[Any]
    """By engine: prompt tokens computed and tokens generated."""
    seconds: float
    """From the first arrival to the last end."""


def replay(
    trace: Trace,
    make_policy: Callable[[Sequence[Engine]], Policy],
    config: EngineConfig,
    replicas: int,
    on_request: Callable[[int], None] = lambda _count: None,
    faults: Sequence[Fault] = (),
) -> Outcome:
    """Run a trace to the end of its last request. `on_request` gets the number of requests sent so far."""
    run = _Run(trace.requests, make_policy, [Engine(config) for _ in range(replicas)], faults)
    while run.left:
        run.step()
        on_request(len(run.sent))
    return run.outcome(config)


class _Run:
    """The state of one replay. The heap has at most one valid entry an engine, by the engine's `wake`."""

    def __init__(
        self,
        requests: Sequence[TraceRequest],
        make_policy: Callable[[Sequence[Engine]], Policy],
        engines: Sequence[Engine],
        faults: Sequence[Fault] = (),
    ) -> None:
        self.left = len(requests)
        self._requests = requests
        self._engines = engines
        self._policy = policy = make_policy(engines)
        self.sent: list[_Sent] = []
        self._faults = faults
        self._open: dict[Handle, int] = {}
        """Number by request that an engine has."""
        self._cancelled = set[int]()
        self._follows: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            if request.after >= 0:
                self._follows.setdefault(request.after, []).append(number)
        self._arrivals = [
            (request.at, number) for number, request in enumerate(requests) if request.after < 0
        ]
        heapify(self._arrivals)
        self._heap = [(at, _TIMER, number, 0) for number, at in enumerate(policy.timers())]
        for number, fault in enumerate(faults):
            self._heap += [(fault.at, _FAULT, number, 1), (fault.until, _FAULT, number, 0)]
        heapify(self._heap)

    def step(self) -> None:
        """Process the next event."""
        at, kind, number, version = self._heap[0]
        if self._arrivals and self._arrivals[0][0] < at:
            arrived_at, number = heappop(self._arrivals)
            self._send(number, arrived_at)
        elif kind == _TIMER:
            if self._skip_idle_time(at):
                return
            if number < len(self._engines):
                # What is read of an engine is of this moment.
                self._report(number, at)
            heapreplace(self._heap, (self._policy.ring(number, at), kind, number, 0))
        else:
            heappop(self._heap)
            if kind == _FAULT:
                self._change(self._faults[number], at, begins=bool(version))
            elif kind == _LEAVE:
                self._cancel(version, number, at)
            elif version == self._engines[number].wake:
                self._report(number, at)
                self._wake(number)

    def _skip_idle_time(self, now: float) -> bool:
        """Move all timers to shortly before the next arrival, if nothing is in flight and it is far away."""
        in_flight = len(self.sent) - (len(self._requests) - self.left)
        if in_flight or self._arrivals[0][0] < now + _IDLE_SECONDS:
            return False
        later = self._arrivals[0][0] - now - _IDLE_SECONDS / 2
        self._heap = [
            (at + later if kind == _TIMER else at, kind, number, version)
            for at, kind, number, version in self._heap
            if kind != _ENGINE
        ]
        heapify(self._heap)
        return True

    def _send(self, number: int, at: float) -> None:
        request = self._requests[number]
        index = self._policy.choose(number, request, at)
        tried = [index]
        while self._engines[index].refuses and len(tried) < ATTEMPTS:
            index = self._policy.choose_again(number, tried, at)
            tried.append(index)
        prompt = Request(request.prompt_tokens, request.output_tokens, request.blocks)
        if self._engines[index].refuses:
            self.sent.append(_Sent(Handle(prompt, at), index))
            self._fail(number, at)
            return
        self._report(index, at)
        handle = self._engines[index].model.submit(prompt, at)
        self._open[handle] = number
        if isfinite(request.patience):
            heappush(self._heap, (at + request.patience, _LEAVE, number, len(self.sent)))
        self.sent.append(_Sent(handle, index))
        self._wake(index)

    def _change(self, fault: Fault, now: float, *, begins: bool) -> None:
        """Begin or end a fault."""
        engine = self._engines[fault.replica]
        self._report(fault.replica, now)
        if begins:
            engine.begin(fault)
        else:
            engine.end()
        if engine.refuses:
            broken = [sent.handle for sent in self.sent if sent.engine == fault.replica]
            for handle in broken:
                if handle in self._open:
                    engine.model.abort(handle, now)
                    self._fail(self._open.pop(handle), now)
        self._wake(fault.replica)

    def _cancel(self, place: int, number: int, now: float) -> None:
        """End a request whose client leaves, unless it has ended."""
        handle, index = self.sent[place]
        self._report(index, now)
        if self._open.pop(handle, None) is not None:
            self._engines[index].model.abort(handle, now)
            self._engines[index].metrics.on_aborted()
            self._cancelled.add(place)
            self._policy.cancelled(number, now)
            self._end(number, now, now)
        self._wake(index)

    def _wake(self, index: int) -> None:
        engine = self._engines[index]
        engine.wake += 1
        at = engine.model.next_milestone_at()
        if at is not None:
            heappush(self._heap, (at, _ENGINE, index, engine.wake))

    def _report(self, index: int, now: float) -> None:
        engine = self._engines[index]
        for event in engine.model.advance(now):
            if event.kind is EventKind.FIRST_TOKEN:
                engine.metrics.on_first_token(event.handle)
                self._policy.first_token(self._open[event.handle], event.at)
            elif event.kind is EventKind.FINISHED:
                number = self._open.pop(event.handle)
                engine.metrics.on_finished(event.handle)
                self._policy.finished(number, event.at)
                self._end(number, event.at, now)

    def _fail(self, number: int, now: float) -> None:
        self._policy.failed(number, now)
        self._end(number, now, now)

    def _end(self, number: int, at: float, now: float) -> None:
        """Note an end, and when the requests come that wait for it."""
        self.left -= 1
        for following in self._follows.get(number, ()):
            heappush(self._arrivals, (max(now, at + self._requests[following].gap), following))

    def outcome(self, config: EngineConfig) -> Outcome:
        """Return the results."""
        handles = [sent.handle for sent in self.sent]
        answered = np.array([handle.state is State.FINISHED for handle in handles])
        cancelled = np.zeros(len(handles), np.bool_)
        cancelled[[*self._cancelled]] = True
        at = np.array([handle.arrived_at for handle in handles])
        first = np.where(answered, np.array([handle.first_token_at for handle in handles], float), np.nan)
        ends = np.where(answered, np.array([handle.finished_at for handle in handles], float), np.nan)
        outputs = np.array([handle.request.output_tokens for handle in handles], np.float64)
        prompts = np.array([handle.request.prompt_tokens for handle in handles], np.float64)
        cached = np.array([handle.cached_tokens for handle in handles], np.float64)
        alone = {
            tokens: config.timing.prefill(tokens, config.max_batched_tokens)
            for tokens in {handle.request.prompt_tokens for handle in handles}
        }
        where = np.array([sent.engine for sent in self.sent])
        tpot = np.divide(ends - first, outputs - 1, out=np.full(len(at), np.nan), where=outputs > 1)
        work = np.where(answered, prompts - cached + outputs, 0.0)
        return Outcome(
            policy=self._policy.name,
            at=at,
            engine=where,
            ttft=first - at,
            e2e=ends - at,
            alone=np.array([alone[handle.request.prompt_tokens] for handle in handles]),
            tpot=tpot,
            prompt_tokens=prompts,
            cached_tokens=cached,
            failed=~answered & ~cancelled,
            cancelled=cancelled,
            busy_seconds=np.array([engine.busy_seconds for engine in self._engines]),
            engine_tokens=np.bincount(where, weights=work, minlength=len(self._engines)),
            seconds=float(np.nanmax(ends, initial=at[-1]) - at[0]),
        )
