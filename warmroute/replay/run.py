"""One replay: a trace, a policy and simulated engines on one virtual clock.

Three kinds of things happen, in the order of their times: requests arrive and are sent where the policy says,
engines give first tokens and end requests, and the policy's timers ring. All are known ahead, so the loop
goes from one moment to the next; nothing waits.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from warmroute.replay.engine import Engine
from warmroute.simulator.model import EventKind, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from warmroute.replay.policies.policy import Policy
    from warmroute.replay.trace import Trace, TraceRequest
    from warmroute.simulator.model import EngineConfig, Handle

_TIMER: Final = 0
_ENGINE: Final = 1
_IDLE_SECONDS: Final = 60.0
"""Of a fleet without requests, of which only the last half is replayed: pages and windows are at rest."""


class _Sent(NamedTuple):
    handle: Handle
    engine: int


class Outcome(NamedTuple):
    """What came of each request, in the order of arrival. Times in seconds."""

    policy: str
    at: NDArray[np.float64]
    engine: NDArray[np.int64]
    ttft: NDArray[np.float64]
    e2e: NDArray[np.float64]
    alone: NDArray[np.float64]
    """Time to first token on an idle, cold replica."""
    tpot: NDArray[np.float64]
    """By output token after the first; NaN: there was one only."""
    prompt_tokens: NDArray[np.float64]
    cached_tokens: NDArray[np.float64]
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
) -> Outcome:
    """Run a trace to the end of its last request. `on_request` gets the number of requests sent so far."""
    run = _Run(trace.requests, make_policy, [Engine(config) for _ in range(replicas)])
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
    ) -> None:
        self.left = len(requests)
        self._requests = requests
        self._engines = engines
        self._policy = policy = make_policy(engines)
        self.sent: list[_Sent] = []
        self._number_of: dict[Handle, int] = {}
        self._follows: dict[int, list[int]] = {}
        for number, request in enumerate(requests):
            if request.after >= 0:
                self._follows.setdefault(request.after, []).append(number)
        self._arrivals = [
            (request.at, number) for number, request in enumerate(requests) if request.after < 0
        ]
        heapify(self._arrivals)
        self._heap = [(at, _TIMER, number, 0) for number, at in enumerate(policy.timers())]
        heapify(self._heap)

    def step(self) -> None:
        """Let the next thing happen."""
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
            if version == self._engines[number].wake:
                self._report(number, at)
                self._wake(number)

    def _skip_idle_time(self, now: float) -> bool:
        """Move all timers to shortly before the next arrival, if nothing is in flight and it is far away."""
        in_flight = len(self.sent) - (len(self._requests) - self.left)
        if in_flight or self._arrivals[0][0] < now + _IDLE_SECONDS:
            return False
        later = self._arrivals[0][0] - now - _IDLE_SECONDS / 2
        self._heap = [(at + later, _TIMER, number, 0) for at, kind, number, _ in self._heap if kind == _TIMER]
        heapify(self._heap)
        return True

    def _send(self, number: int, at: float) -> None:
        request = self._requests[number]
        index = self._policy.choose(number, request, at)
        self._report(index, at)
        prompt = Request(request.prompt_tokens, request.output_tokens, request.blocks)
        handle = self._engines[index].model.submit(prompt, at)
        self._number_of[handle] = number
        self.sent.append(_Sent(handle, index))
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
            number = self._number_of[event.handle]
            if event.kind is EventKind.FIRST_TOKEN:
                engine.metrics.on_first_token(event.handle)
                self._policy.first_token(number, event.at)
            elif event.kind is EventKind.FINISHED:
                self.left -= 1
                engine.metrics.on_finished(event.handle)
                self._policy.finished(number, event.at)
                for following in self._follows.get(number, ()):
                    at = max(now, event.at + self._requests[following].gap)
                    heappush(self._arrivals, (at, following))

    def outcome(self, config: EngineConfig) -> Outcome:
        """Return what came of each request."""
        handles = [sent.handle for sent in self.sent]
        at = np.array([handle.arrived_at for handle in handles])
        first = np.array([handle.first_token_at for handle in handles], np.float64)
        ends = np.array([handle.finished_at for handle in handles], np.float64)
        outputs = np.array([handle.request.output_tokens for handle in handles], np.float64)
        prompts = np.array([handle.request.prompt_tokens for handle in handles], np.float64)
        cached = np.array([handle.cached_tokens for handle in handles], np.float64)
        alone = {
            tokens: config.timing.prefill(tokens, config.max_batched_tokens)
            for tokens in {handle.request.prompt_tokens for handle in handles}
        }
        where = np.array([sent.engine for sent in self.sent])
        more = outputs > 1
        tpot = np.divide(ends - first, outputs - 1, out=np.full(len(at), np.nan), where=more)
        tokens = np.bincount(where, weights=prompts - cached + outputs, minlength=len(self._engines))
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
            busy_seconds=np.array([engine.busy_seconds for engine in self._engines]),
            engine_tokens=tokens,
            seconds=float(ends.max() - at[0]),
        )
