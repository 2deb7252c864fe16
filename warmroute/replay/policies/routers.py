"""Policies of other routers, from their public descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class CacheAware(Observer):
    """SGLang's router, `cache_aware`: the longest prefix while loads are balanced, otherwise the least load.

    Loads, requests in flight, are balanced if max - min <= 64 or max <= 1.5 * min. A match below half of the
    prompt counts as none. Source: sgl-router's README with its defaults `cache_threshold` 0.5,
    `balance_abs_threshold` 64, `balance_rel_threshold` 1.5.
    """

    name = "sglang"
    THRESHOLD: Final = 0.5
    APART: Final = 64
    RATIO: Final = 1.5

    def pick(self, request: TraceRequest) -> int:
        """Return one by match or load."""
        most, fewest = self.in_flight.max(), self.in_flight.min()
        if most - fewest > self.APART and most > self.RATIO * fewest:
            return self.least(self.in_flight)
        matched = self.index.matched(request.blocks)
        if matched.max() * self.block_tokens > self.THRESHOLD * request.prompt_tokens:
            return self.least(-matched)
        return self.least(self.in_flight)


class SpillGate(Observer):
    """SMG: the longest prefix, unless its engine has clearly more to do than the least loaded.

    A coarse reading: spill when the holder's requests in flight are above 1.5 times the mean plus 2.
    """

    name = "smg"

    def pick(self, request: TraceRequest) -> int:
        """Return the holder or the least loaded."""
        matched = self.index.matched(request.blocks)
        cost = self.in_flight - 1e-3 * matched
        if matched.max() > 1:
            holder = self.least(-matched * 1e3 + self.in_flight)
            if self.in_flight[holder] <= 1.5 * self.in_flight.mean() + 2:
                return holder
        return self.least(cost)


class Dynamo(Observer):
    """NVIDIA Dynamo's KV router: cost = overlap_weight * new prefill blocks + active blocks, weight 1."""

    name = "dynamo"

    def pick(self, request: TraceRequest) -> int:
        """Return the cheapest; its own blocks count in both terms."""
        new = request.prompt_tokens / self.block_tokens - self.index.matched(request.blocks)
        return self.least(new + self.waiting_tokens / self.block_tokens + self.active_blocks)


class AIBrix(Observer):
    """AIBrix `prefix-cache`: longest prefix among those within one standard deviation of the mean load."""

    name = "aibrix"

    def pick(self, request: TraceRequest) -> int:
        """Return a holder that is not overloaded."""
        load = self.in_flight
        allowed = load <= load.mean() + load.std()
        matched = np.where(allowed, self.index.matched(request.blocks), -1.0)
        if matched.max() > 0:
            return self.least(np.where(matched == matched.max(), load, np.inf))
        return self.least(load)


class LlmD(Observer):
    """llm-d's default profile: prefix share * 3 + queue score * 2 + KV score * 2, scores by min-max."""

    name = "llm_d"

    def pick(self, request: TraceRequest) -> int:
        """Return the best score."""
        matched = self.index.matched(request.blocks) * self.block_tokens / request.prompt_tokens
        queue = np.array([gauges.waiting for gauges in self.gauges], float)
        spread = queue.max() - queue.min()
        idle = (queue.max() - queue) / spread if spread else np.ones(self.size)
        free = np.array([1.0 - gauges.kv_used_ratio for gauges in self.gauges])
        return self.least(-(3 * matched + 2 * idle + 2 * free))
