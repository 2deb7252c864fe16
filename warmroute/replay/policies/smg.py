"""Shepherd Model Gateway.

Source: `cache_aware` and `least_load` of github.com/smg-project/smg, with the defaults of its command line:
`cache_threshold` 0.3, `balance_abs_threshold` 64, `balance_rel_threshold` 1.5; KV pressure weighs 0.15 s, and
2,000 tokens/s where an engine tells no rate. Its engines are polled for queues; here the queue is what the
router itself has sent, so fresher.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class Smg(Observer):
    """The longest prefix, unless its engine is far above the mean load: then the least expected wait.

    Far: by the factor and by the number of requests in flight, both. Expected wait = queued tokens /
    throughput + 0.15 s * k / (1 - k), with k the used share of the KV cache. It decides between engines with
    the same prefix, too, and for prompts with a match of at most 0.3.
    """

    name = "smg"
    THRESHOLD: Final = 0.3
    RATIO: Final = 1.5
    ABOVE_MEAN: Final = 64
    TOKENS_PER_SECOND: Final = 2000.0
    PRESSURE_SECONDS: Final = 0.15

    def pick(self, request: TraceRequest) -> int:
        """Return a holder, or the one with the least expected wait."""
        used = np.array([min(gauges.kv_used_ratio, 0.999) for gauges in self.gauges])
        wait = self.waiting_tokens / self.TOKENS_PER_SECOND + self.PRESSURE_SECONDS * used / (1 - used)
        load, mean = self.in_flight, self.in_flight.mean()
        allowed = (load <= self.RATIO * mean) | (load <= mean + self.ABOVE_MEAN)
        matched = self.index.matched(request.blocks)
        if matched.max() * self.block_tokens <= self.THRESHOLD * request.prompt_tokens:
            return self.least(wait)
        holders = allowed & (matched == matched.max())
        return self.least(np.where(holders if holders.any() else allowed, wait, np.inf))
