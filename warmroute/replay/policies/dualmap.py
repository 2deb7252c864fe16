"""DualMap (arXiv:2602.06502): two hash functions give each prefix two engines, and their state decides.

Sources: the paper's abstract and summary, and `dualmap.go` of github.com/vllm-project/aibrix for the window
of hot prefixes: the last 200 prompts, hot from 6.12 %. The migration of prompts that wait in the router is
left out: here none waits there.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

import numpy as np

from warmroute.replay.policies.policy import Observer
from warmroute.replay.policies.session_hash import rendezvous

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.replay.engine import Engine
    from warmroute.replay.policies.policy import Plan
    from warmroute.replay.trace import TraceRequest


class DualMap(Observer):
    """Of the two engines of its prefix the one with more of the prompt, while that keeps the SLO.

    Otherwise the one with the earlier first token. The prefix is the shortest that is not hot.
    """

    name = "dualmap"
    SLO_SECONDS: Final = 2.0
    WINDOW: Final = 200
    HOT: Final = 0.0612

    def __init__(self, engines: Sequence[Engine], plan: Plan) -> None:
        super().__init__(engines, plan)
        self._recent: deque[tuple[int, ...]] = deque()
        self._count: Counter[int] = Counter()
        """By block: recent prompts with it. A block's id stands for the prefix that it ends."""

    def pick(self, request: TraceRequest) -> int:
        """Return one of two."""
        key = self._prefix(request.blocks) if request.blocks else (self.draw.getrandbits(64),)
        one = rendezvous(key, self.size)
        other = rendezvous(key, self.size - 1, "other") if self.size > 1 else one
        # The second of two different engines: the numbers from the first on move up by one.
        pair = [one, other + (other >= one) if self.size > 1 else one]
        cold = self.cold(request)[pair]
        timing = self.plan.config.timing
        seconds = self.waiting_tokens[pair] * timing.prefill_token_seconds
        seconds += [timing.chunk(request.prompt_tokens - int(each), int(each)) for each in cold]
        chosen = self.least(cold + 1e-3 * self.in_flight[pair])
        return pair[chosen if seconds[chosen] <= self.SLO_SECONDS else int(np.argmin(seconds))]

    def _prefix(self, blocks: tuple[int, ...]) -> tuple[int, ...]:
        self._recent.append(blocks)
        self._count.update(blocks)
        if len(self._recent) > self.WINDOW:
            for block in self._recent.popleft():
                self._count[block] -= 1
                if not self._count[block]:
                    del self._count[block]
        hot = self.HOT * self.WINDOW
        length = next((at for at, block in enumerate(blocks, 1) if self._count[block] < hot), len(blocks))
        return blocks[:length]
