"""Lodestar (arXiv:2606.00946), a router that learns online.

Of the text we have the abstract: each request is a sample of instance state, request and observed latency, a
predictor of the reward (here -TTFT) learns from them online, and a request goes where the prediction is best.
Ours are the features, the model (recursive least squares with forgetting) and the share of exploration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest


class Lodestar(Observer):
    """The least predicted time to first token; until 100 were seen, the fewest requests in flight."""

    name = "lodestar"
    SAMPLES: Final = 100
    EXPLORE: Final = 0.01
    MEMORY: Final = 0.9995
    """Weight of a sample, relative to the next."""

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        super().__init__(engines, plan)
        features = 9
        self._weights = np.zeros(features)
        self._covariance = 1e3 * np.eye(features)
        self._samples = 0
        self._pending: dict[int, tuple[float, NDArray[np.float64]]] = {}
        """By request: its time, and the features of its engine."""
        self._features: NDArray[np.float64] = np.zeros((self.size, features))

    def choose(self, number: int, request: TraceRequest, now: float) -> int:
        """Pick, and keep the sample."""
        engine = super().choose(number, request, now)
        self._pending[number] = now, self._features[engine]
        return engine

    def pick(self, request: TraceRequest) -> int:
        """Return the best prediction."""
        self._features = self._snapshot(request)
        if self._samples < self.SAMPLES:
            return self.least(self.in_flight)
        if self.draw.random() < self.EXPLORE:
            return self.draw.randrange(self.size)
        return self.least(self._features @ self._weights)

    def first_token(self, number: int, now: float) -> None:
        """Learn from the latency."""
        super().first_token(number, now)
        at, features = self._pending.pop(number)
        spread = self._covariance @ features
        gain = spread / (self.MEMORY + features @ spread)
        self._weights += gain * (now - at - features @ self._weights)
        self._covariance = (self._covariance - np.outer(gain, spread)) / self.MEMORY
        self._samples += 1

    def failed(self, number: int, now: float) -> None:
        """Learn nothing from it."""
        super().failed(number, now)
        self._pending.pop(number, None)

    def _snapshot(self, request: TraceRequest) -> NDArray[np.float64]:
        """Return the features by engine, each of the order of 1."""
        cold, queue = self.cold(request) / 1e4, self.waiting_tokens / 1e4
        gauges = np.array(self.gauges, float)
        columns = np.ones(self.size), cold, cold * request.prompt_tokens / 1e4, cold * cold, queue
        return np.column_stack((*columns, self.in_flight / 10, gauges[:, 0] / 10, gauges[:, 1], gauges[:, 2]))
