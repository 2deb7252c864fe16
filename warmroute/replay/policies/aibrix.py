"""AIBrix.

Source: `prefix_cache.go` of github.com/vllm-project/aibrix with its defaults: one standard deviation,
imbalance from 2 * (mean + 1) requests and a gap of 8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class AIBrix(Observer):
    """`prefix-cache`: the longest prefix among those within one standard deviation of the mean load.

    Under imbalance only the least loaded count. Without a match among those, the least loaded. Where all
    prompts share their first block, the rule can leave half of a fleet idle: with k requests at four of eight
    engines and none at the others, k is the mean plus one deviation, so the four stay allowed, and only they
    match.
    """

    name = "aibrix"
    FACTOR: Final = 2.0
    GAP: Final = 8

    def pick(self, request: TraceRequest) -> int:
        """Return a holder that is not overloaded."""
        load = self.in_flight
        allowed = load <= load.mean() + load.std()
        if load.max() > self.FACTOR * (load.mean() + 1) and load.max() - load.min() >= self.GAP:
            allowed = load == load.min()
        matched = np.where(allowed, self.index.matched(request.blocks), -1.0)
        if matched.max() > 0:
            return self.least(np.where(matched == matched.max(), load, np.inf))
        return self.least(load)
