"""Preble's global scheduler E2, exploitation and exploration (ICLR 2025, arXiv:2407.00023).

Sources: the paper's description, and `global_scheduler_with_time.py` of github.com/WukLab/preble for the
window of three minutes. The ratio of loads from which exploitation stops is ours, 1.1: the description leaves
it open. Left out are the time of decodes, whose batches share it, the cost of the blocks that a prompt pushes
out of a full cache, which grows with its own prefill, and the replication of a prefix whose queueing time
doubles.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest


class Preble(Observer):
    """Where most of the prompt is cached, the least loaded of its holders; otherwise the least cost.

    Cost = load of the window, seconds of prefill that it brought, + the prompt's own prefill.
    """

    name = "preble"
    WINDOW_SECONDS: Final = 180.0
    APART: Final = 1.1

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        super().__init__(engines, plan)
        self._window: deque[tuple[float, int, float]] = deque()
        """Time, engine and seconds of prefill of each request."""
        self._load = np.zeros(self.size)

    def pick(self, request: TraceRequest) -> int:
        """Exploit or explore."""
        while self._window and self._window[0][0] < self.now - self.WINDOW_SECONDS:
            _, engine, seconds = self._window.popleft()
            self._load[engine] -= seconds
        cold = self.cold(request)
        prefill = self._prefill_seconds(request.prompt_tokens, cold)
        chosen = self.least(self._load + prefill)
        if 2 * cold.min() < request.prompt_tokens:
            holder = self.least(np.where(cold == cold.min(), self._load, np.inf))
            if self._load[holder] <= self.APART * self._load.mean():
                chosen = holder
        seconds = float(prefill[chosen])
        self._load[chosen] += seconds
        self._window.append((self.now, chosen, seconds))
        return chosen

    def _prefill_seconds(self, tokens: int, cold: NDArray[np.float64]) -> NDArray[np.float64]:
        timing = self.plan.config.timing
        return np.array([timing.chunk(tokens - int(each), int(each)) for each in cold])
