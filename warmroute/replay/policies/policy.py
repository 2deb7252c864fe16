"""What a policy is, and what all of them may know."""

from __future__ import annotations

from collections import OrderedDict
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

    def first_token(self, number: int, now: float, /) -> None:
        """Note the first byte of an answer."""
        ...

    def finished(self, number: int, now: float, /) -> None:
        """Note the end of an answer."""
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
    cold_tokens: float
    blocks: float


class Observer:
    """A policy that knows its own requests, and each engine's gauges as of the last scrape."""

    name = ""

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
        self.active_blocks: NDArray[np.float64] = np.zeros(size)
        """Blocks of prompts in flight."""
        self.gauges = [Gauges(0, 0, 0.0)] * size
        self.index = BlockIndex(size, plan.config.num_blocks)
        self._sent: dict[int, _Sent] = {}

    def timers(self) -> Sequence[float]:
        """Return one scrape an engine, spread over the interval."""
        return [SCRAPE_SECONDS * (engine + 1) / self.size for engine in range(self.size)]

    def ring(self, number: int, now: float) -> float:
        """Read an engine's gauges."""
        self.gauges[number] = Gauges.of(self.engines[number].model)
        return now + SCRAPE_SECONDS

    def choose(self, number: int, request: TraceRequest, _now: float) -> int:
        """Pick and note."""
        engine = self.pick(request)
        matched = float(self.index.matched(request.blocks)[engine])
        cold = request.prompt_tokens - matched * self.block_tokens
        sent = self._sent[number] = _Sent(engine, cold, request.prompt_tokens / self.block_tokens)
        self.in_flight[engine] += 1
        self.waiting_tokens[engine] += cold
        self.active_blocks[engine] += sent.blocks
        self.index.add(engine, request.blocks)
        return engine

    def pick(self, request: TraceRequest) -> int:
        """Return an engine."""
        raise NotImplementedError

    def first_token(self, number: int, _now: float) -> None:
        """Note that its prompt is computed."""
        engine, cold, _ = self._sent[number]
        self.waiting_tokens[engine] -= cold

    def finished(self, number: int, _now: float) -> None:
        """Note its end."""
        engine, _, blocks = self._sent.pop(number)
        self.in_flight[engine] -= 1
        self.active_blocks[engine] -= blocks

    def least(self, cost: NDArray[np.float64]) -> int:
        """Return a cheapest engine, drawn among equals."""
        best = np.flatnonzero(cost <= cost.min())
        return int(best[self.draw.randrange(best.size)]) if best.size > 1 else int(best[0])
