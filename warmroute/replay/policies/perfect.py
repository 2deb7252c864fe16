"""References: they know the engines' true prefill times, or look into the engines, as no router can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class Greedy(Observer):
    """The least true time to first token: what engines hold, and what they have to compute before it."""

    name = "greedy_perfect"

    def pick(self, request: TraceRequest) -> int:
        """Return the engine that would answer first."""
        timing, cost = self.plan.config.timing, np.zeros(self.size)
        for number, engine in enumerate(self.engines):
            model = engine.model
            cached = model.cache.match(request.blocks, len(request.blocks)) * self.block_tokens
            cost[number] = 1e-3 * model.running + timing.chunk(cached, request.prompt_tokens - cached)
            cost[number] += sum(timing.chunk(computed, left) for computed, left in model.prefill_left())
        return self.least(cost)


class ColdPrice(Observer):
    """Queue ahead + cold prefill * (3 + 3 * mean queue), with the engine's true prefill times."""

    name = "cold_price"
    LONGER: Final = 1.3
    """What a waiting token takes against one of a short prompt."""

    def pick(self, request: TraceRequest) -> int:
        """Return the cheapest."""
        timing = self.plan.config.timing
        matched = self.index.matched(request.blocks) * self.block_tokens
        cold = request.prompt_tokens - matched
        seconds = cold * timing.prefill_token_seconds
        seconds += timing.attention_pair_seconds * cold * (request.prompt_tokens - cold / 2)
        queue = self.waiting_tokens * (timing.prefill_token_seconds * self.LONGER)
        return self.least(queue + seconds * (3 + 3 * queue.mean()))
