"""The decoding requests of an engine, counted together.

Each of them gets one token in every step, so a step changes sums and no request. Only two things happen to a
single request: it needs another block, or it ends. Both are due at known steps, and wait in heaps.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warmroute.simulator.model import Handle


class Decodes:
    """Requests with a first token. Steps are numbered from 0; `step` is the one under way or the next."""

    def __init__(self, block_tokens: int) -> None:
        self.step = 0
        self.count = 0
        self.kv_tokens = 0
        """Tokens that these requests have in the KV cache."""
        self._block_tokens = block_tokens
        # A handle's entry is void once its `since` differs.
        self._ends: list[tuple[int, int, int, Handle]] = []
        self._growths: list[tuple[int, int, int, Handle]] = []

    def join(self, handle: Handle) -> None:
        """Let a request decode from the next step on."""
        since = handle.since = self.step - handle.emitted
        handle.computed = handle.request.prompt_tokens + handle.emitted - 1
        self.count += 1
        self.kv_tokens += handle.computed
        end = since + handle.request.output_tokens - 1
        heappush(self._ends, (end, handle.number, since, handle))
        growth = self.step + -handle.computed % self._block_tokens
        if growth <= end:
            heappush(self._growths, (growth, handle.number, since, handle))

    def leave(self, handle: Handle) -> None:
        """Count a request no longer."""
        self.settle(handle)
        handle.since = None
        self.count -= 1
        self.kv_tokens -= handle.computed

    def settle(self, handle: Handle) -> None:
        """Write to a request what it has by now."""
        assert handle.since is not None
        handle.emitted = self.step - handle.since
        handle.computed = handle.request.prompt_tokens + handle.emitted - 1

    def advance(self, steps: int) -> None:
        """End `steps` steps."""
        self.step += steps
        self.kv_tokens += steps * self.count

    def growing(self) -> Iterator[Handle]:
        """Yield those that need a block for this step, in order of admission."""
        growths = self._growths
        while growths and growths[0][0] <= self.step:
            step, number, since, handle = growths[0]
            if handle.since == since:
                heapreplace(growths, (step + self._block_tokens, number, since, handle))
                self.settle(handle)
                yield handle
            else:
                heappop(growths)

    def ended(self) -> Iterator[Handle]:
        """Yield those with all their tokens, in order of admission."""
        ends = self._ends
        while ends and ends[0][0] < self.step:
            _, _, since, handle = heappop(ends)
            if handle.since == since:
                yield handle

    def quiet_steps(self) -> int:
        """Return how many steps, the one under way included, change sums only."""
        until = self._next_end()
        if self._growths and self._growths[0][0] < until:
            until = self._growths[0][0]
        return until - self.step

    def steps_to_end(self) -> int:
        """Return after how many steps, the one under way included, the first of them has all its tokens."""
        return self._next_end() - self.step + 1

    def _next_end(self) -> int:
        ends = self._ends
        while ends[0][3].since != ends[0][2]:
            heappop(ends)
        return ends[0][0]
