"""llm-d's router, two of its profiles.

Sources: the charts' default profile and the READMEs of `prefix-cache-affinity-filter` and `token-load-scorer`
in github.com/llm-d/llm-d-router; llm-d.ai/blog/sticky-until-saturated-token-aware-routing. Gauges are 50 ms
old at most, as its endpoint picker refreshes them by default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class LlmD(Observer):
    """The default profile: prefix share * 3 + queue score * 2 + KV score * 2, queues by min-max."""

    name = "llm_d"
    scrape_seconds = 0.05

    def pick(self, request: TraceRequest) -> int:
        """Return the best score."""
        matched = self.index.matched(request.blocks) * self.block_tokens / request.prompt_tokens
        queue = np.array([gauges.waiting for gauges in self.gauges], float)
        spread = queue.max() - queue.min()
        idle = (queue.max() - queue) / spread if spread else np.ones(self.size)
        free = np.array([1.0 - gauges.kv_used_ratio for gauges in self.gauges])
        return self.least(-(3 * matched + 2 * idle + 2 * free))


class StickyUntilSaturated(Observer):
    """The least token load among engines with at least 0.8 of the prompt, until they are saturated.

    Saturated: the least prompt work of those is 18 s above the least of the others, at the rate of one chunk
    on an idle engine, as the calibration measures it. Then, and without a holder, all engines count. Token
    load: uncached prompt tokens in flight, with the request's own.
    """

    name = "llm_d_sticky"
    AFFINITY: Final = 0.8
    PENALTY_SECONDS: Final = 18.0

    def pick(self, request: TraceRequest) -> int:
        """Return the least loaded of those that count."""
        cold, config = self.cold(request), self.plan.config
        holders = request.prompt_tokens - cold >= self.AFFINITY * request.prompt_tokens
        if not holders.any():
            holders = ~holders
        elif not holders.all():
            chunk = config.max_batched_tokens
            most = self.PENALTY_SECONDS * chunk / config.timing.prefill(chunk, chunk)
            if self.waiting_tokens[holders].min() - self.waiting_tokens[~holders].min() > most:
                holders = np.ones_like(holders)
        return self.least(np.where(holders, self.waiting_tokens + cold, np.inf))
