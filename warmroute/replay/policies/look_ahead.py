"""A reference that looks ahead: it knows the next arrivals, and plays them through for each engine.

A rollout in the sense of Bertsekas, Rollout, Policy Iteration, and Distributed Reinforcement Learning, 2020:
one step of policy iteration over `greedy_perfect`, on a model of engines as queues of prefill seconds.
"""

from __future__ import annotations

from bisect import insort
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest


class LookAhead(Observer):
    """The engine after which this and the next requests, each sent greedily, wait least for first tokens.

    Of a session it knows the next request from the end of the answer before.
    """

    name = "look_ahead"
    ARRIVALS: Final = 24
    """Further ones tell less than the model errs."""
    HORIZON_SECONDS: Final = 30.0
    REQUEST_SECONDS: Final = 1e-3
    """What a request in the batch costs the next, as in `greedy_perfect`."""

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        super().__init__(engines, plan)
        self._coming = [(each.at, number) for number, each in enumerate(plan.requests) if each.after < 0]
        self._coming.sort()
        self._following: dict[int, list[int]] = {}
        for number, each in enumerate(plan.requests):
            if each.after >= 0:
                self._following.setdefault(each.after, []).append(number)
        self._shared: dict[int, dict[int, int]] = {}
        """By request of the window: leading blocks that it shares with others."""

    def choose(self, number: int, request: TraceRequest, now: float) -> int:
        """Pick with the next arrivals in view."""
        place = next((at for at, (_, coming) in enumerate(self._coming) if coming == number), None)
        if place is not None:
            del self._coming[place]
        self._number = number
        engine = super().choose(number, request, now)
        self._shared.pop(number, None)
        return engine

    def finished(self, number: int, now: float) -> None:
        """Note when the session goes on."""
        super().finished(number, now)
        for following in self._following.get(number, ()):
            insort(self._coming, (now + self.plan.requests[following].gap, following))

    def pick(self, request: TraceRequest) -> int:
        """Return the engine of the least sum; row r of all arrays is the play that begins with engine r."""
        timing, rows = self.plan.config.timing, np.arange(self.size)
        end = self.now + self.HORIZON_SECONDS
        window = [(self.now, self._number, request)] + [
            (max(at, self.now), number, self.plan.requests[number])
            for at, number in takewhile(lambda coming: coming[0] < end, self._coming[: self.ARRIVALS - 1])
        ]
        free_at = np.tile(self._free_at(), (self.size, 1))
        chosen = np.empty((self.size, len(window)), np.int64)
        total: NDArray[np.float64] = np.zeros(self.size)
        places: dict[int, int] = {}
        for place, (at, number, each) in enumerate(window):
            matched = self._matched(each)[None, :]
            for other, blocks in self._shares(number, each).items():
                if other in places and blocks > matched.min():
                    if len(matched) == 1:
                        matched = np.tile(matched, (self.size, 1))
                    there = rows, chosen[:, places[other]]
                    matched[there] = np.maximum(matched[there], blocks)
            cold = np.maximum(each.prompt_tokens - matched * self.block_tokens, 1)
            pairs = cold * (each.prompt_tokens - cold / 2)
            seconds = timing.prefill_token_seconds * cold + timing.attention_pair_seconds * pairs
            done_at = np.maximum(free_at, at) + seconds
            chosen[:, place] = done_at.argmin(1) if place else rows
            there = rows, chosen[:, place]
            free_at[there] = done_at[there]
            total += done_at[there] - at
            places[number] = place
        return self.least(total)

    def _free_at(self) -> NDArray[np.float64]:
        """Return when each engine will have computed the prompts that it has."""
        config = self.plan.config
        timing, result = config.timing, np.empty(self.size)
        for number, engine in enumerate(self.engines):
            model, seconds, tokens = engine.model, 0.0, 0
            for computed, left in model.prefill_left():
                seconds += timing.chunk(computed, left)
                tokens += left
            step = timing.step(model.running, model.cache.used * self.block_tokens, 0, 0)
            seconds += step * (1 + tokens // config.max_batched_tokens)
            result[number] = self.now + seconds + self.REQUEST_SECONDS * model.running
        return result

    def _matched(self, request: TraceRequest) -> NDArray[np.float64]:
        """Return the blocks in each engine's cache; the last token is always computed."""
        most = (request.prompt_tokens - 1) // self.block_tokens
        return np.array([each.model.cache.match(request.blocks, most) for each in self.engines], float)

    def _shares(self, number: int, request: TraceRequest) -> dict[int, int]:
        """Return the leading blocks shared with others of the window, by their number."""
        shares = self._shared.get(number)
        if shares is None:
            shares = {}
            for other in self._shared:
                pairs = zip(request.blocks, self.plan.requests[other].blocks, strict=False)
                same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
                if same:
                    shares[other] = self._shared[other][number] = same
            self._shared[number] = shares
        return shares
