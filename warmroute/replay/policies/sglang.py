"""SGLang's router.

Source: `cache_aware` of `sgl-model-gateway` (github.com/sgl-project/sglang), with the defaults of its command
line: `cache_threshold` 0.3, `balance_abs_threshold` 64, `balance_rel_threshold` 1.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class CacheAware(Observer):
    """The longest prefix while loads are balanced, otherwise the least load.

    Loads, requests in flight, are balanced if max - min <= 64 or max <= 1.5 * min. A match of at most 0.3 of
    the prompt counts as none.
    """

    name = "sglang"
    THRESHOLD: Final = 0.3
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
