"""A reference that no router can be: it looks into the engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
