"""What a policy is, and what all of them may know."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from warmroute.simulator.metrics import Gauges

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from warmroute.replay.engine import Engine
    from warmroute.replay.trace import TraceRequest
    from warmroute.simulator.model import EngineConfig

SCRAPE_SECONDS: Final = 0.5


class Plan(NamedTuple):
    """What a policy is made for."""

    config: EngineConfig
    seed: int = 0
    workers: int = 1
    """Of ext_proc."""
    scrape_seconds: float | None = None
    """Between two readings of an engine; None: the policy's own."""
    signal_delay_seconds: float = 0.0
    """From a reading to its effect on picks."""
    requests: Sequence[TraceRequest] = ()
    """Of the whole trace, for policies that look ahead."""


class Policy(Protocol):
    """Chooses an engine for each request."""

    name: str

    def timers(self) -> Sequence[float]:
        """Return when each of its timers rings first, in seconds."""
        ...

    def ring(self, number: int, now: float) -> float:
        """Do what a timer is for; return when it rings next."""
        ...

    def choose(self, number: int, request: TraceRequest, now: float, /) -> int:
        """Return the engine for a request of the trace."""
        ...

    def choose_again(self, number: int, tried: Sequence[int], now: float, /) -> int:
        """Return another engine after those in `tried` have refused the request."""
        ...

    def first_token(self, number: int, now: float, /) -> None:
        """Note the first byte of an answer."""
        ...

    def finished(self, number: int, now: float, /) -> None:
        """Note the end of an answer."""
        ...

    def failed(self, number: int, now: float, /) -> None:
        """Note the end of a request without an answer, or with a part of one."""
        ...

    def cancelled(self, number: int, now: float, /) -> None:
        """Note that its client has left."""
        ...


class BlockIndex:
    """Who was sent which blocks: an LRU of as many blocks an engine as its cache has."""

    def __init__(self, engines: int, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(engines)]

    def matched(self, blocks: Sequence[int]) -> NDArray[np.float64]:
        """Return by engine how many leading blocks it should have."""
        result = np.zeros(len(self._blocks))
        for engine, there in enumerate(self._blocks):
            count = 0
            for block in blocks:
                if block not in there:
                    break
                count += 1
            result[engine] = count
        return result

    def add(self, engine: int, blocks: Sequence[int]) -> None:
        """Note that an engine was sent these."""
        there = self._blocks[engine]
        # The tail first, so that a prefix outlives what follows it.
        for block in reversed(blocks):
            there[block] = None
            there.move_to_end(block)
        while len(there) > self._capacity:
            there.popitem(last=False)


class _Sent(NamedTuple):
    engine: int
    waiting_tokens: float
    """Prompt tokens, as far as taken for cold; 0 after the first token."""
    blocks: Sequence[int]


class Observer:
    """A policy that knows its own requests, and each engine's gauges as of the last scrape."""

    name = ""
    scrape_seconds: float = SCRAPE_SECONDS
    """Between two readings, unless the plan has another."""
    now = 0.0
    """Of the pick."""

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        size = self.size = len(engines)
        self.plan = plan
        self.draw = Random(plan.seed)
        self.engines = engines
        self.block_tokens = plan.config.block_tokens
        self.in_flight: NDArray[np.float64] = np.zeros(size)
        """Requests sent and not ended."""
        self.waiting_tokens: NDArray[np.float64] = np.zeros(size)
        """Prompt tokens, as far as taken for cold, of requests without a first token."""
        self.active_blocks: list[Counter[int]] = [Counter() for _ in range(size)]
        """By engine: the full blocks of prompts in flight, and how many prompts have each."""
        self.gauges = [Gauges(0, 0, 0.0)] * size
        self._scrape_seconds = plan.scrape_seconds or self.scrape_seconds
        self._readings: deque[tuple[float, int, Gauges]] = deque()
        """Those whose delay is not over: the end of the delay, the engine, its gauges."""
        self.index = BlockIndex(size, plan.config.num_blocks)
        self._sent: dict[int, _Sent] = {}

    def timers(self) -> Sequence[float]:
        """Return one scrape an engine, spread over the interval."""
        return [self._scrape_seconds * (engine + 1) / self.size for engine in range(self.size)]

    def ring(self, number: int, now: float) -> float:
        """Read an engine's gauges."""
        engine = self.engines[number]
        if engine.readable:
            self._readings.append((now + self.plan.signal_delay_seconds, number, Gauges.of(engine.model)))
        return now + self._scrape_seconds

    def choose(self, number: int, request: TraceRequest, now: float) -> int:
        """Pick and note."""
        self.now = now
        while self._readings and self._readings[0][0] <= now:
            _, read, self.gauges[read] = self._readings.popleft()
        engine = self.pick(request)
        self._note(number, _Sent(engine, float(self.cold(request)[engine]), request.blocks))
        self.index.add(engine, request.blocks)
        return engine

    def _note(self, number: int, sent: _Sent) -> None:
        self._sent[number] = sent
        self.in_flight[sent.engine] += 1
        self.waiting_tokens[sent.engine] += sent.waiting_tokens
        self.active_blocks[sent.engine].update(sent.blocks)

    def pick(self, request: TraceRequest) -> int:
        """Return an engine."""
        raise NotImplementedError

    def choose_again(self, number: int, tried: Sequence[int], _now: float) -> int:
        """Return the one with the fewest requests in flight that was not tried."""
        load = self.in_flight.copy()
        load[list(tried)] = np.inf
        engine = self.least(load)
        self._note(number, self._release(number)._replace(engine=engine))
        return engine

    def first_token(self, number: int, _now: float) -> None:
        """Note that its prompt is computed."""
        sent = self._sent[number]
        self.waiting_tokens[sent.engine] -= sent.waiting_tokens
        self._sent[number] = sent._replace(waiting_tokens=0.0)

    def finished(self, number: int, _now: float) -> None:
        """Note its end."""
        self._release(number)

    def failed(self, number: int, now: float) -> None:
        """Note its end without an answer."""
        self.finished(number, now)

    def cancelled(self, number: int, now: float) -> None:
        """Note its end by the client."""
        self.failed(number, now)

    def _release(self, number: int) -> _Sent:
        sent = self._sent.pop(number)
        self.in_flight[sent.engine] -= 1
        self.waiting_tokens[sent.engine] -= sent.waiting_tokens
        active = self.active_blocks[sent.engine]
        for block in sent.blocks:
            active[block] -= 1
            if not active[block]:
                del active[block]
        return sent

    def cold(self, request: TraceRequest) -> NDArray[np.float64]:
        """Return by engine the prompt tokens that it should have to compute: at least the last one."""
        return np.maximum(request.prompt_tokens - self.index.matched(request.blocks) * self.block_tokens, 1)

    def least(self, cost: NDArray[np.float64]) -> int:
        """Return a cheapest engine, drawn among equals."""
        best = np.flatnonzero(cost <= cost.min())
        return int(best[self.draw.randrange(best.size)]) if best.size > 1 else int(best[0])
