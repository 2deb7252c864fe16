"""LMetric (arXiv:2603.15202): the product of two indicators needs no weight between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from warmroute.replay.trace import TraceRequest


class LMetric(Observer):
    """New prefill tokens * batch size, both with the request itself."""

    name = "lmetric"

    def pick(self, request: TraceRequest) -> int:
        """Return the smallest product."""
        return self.least(self.cold(request) * (self.in_flight + 1))


class LMetricQueued(Observer):
    """The same with the prompt tokens in flight in the first factor.

    Source: `l-metric-local` of github.com/vllm-project/aibrix. Tokens count up to the first token; there, up
    to the end of the answer.
    """

    name = "lmetric_queued"

    def pick(self, request: TraceRequest) -> int:
        """Return the smallest product."""
        return self.least((self.waiting_tokens + self.cold(request)) * (self.in_flight + 1))
