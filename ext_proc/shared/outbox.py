"""Limits of what a worker shares: additions that wait for sending, and blocks of other workers. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ext_proc.shared.batch import Addition

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outbox:
    """A queue of at most `limit_blocks` blocks, which drops the oldest. Single-threaded."""

    def __init__(self, limit_blocks: int) -> None:
        self._limit = limit_blocks
        self._queue: deque[Addition] = deque()
        self.blocks = 0
        """In the queue now."""
        self.dropped = 0
        """Blocks dropped since the start."""

    def add(self, address: str, blocks: Sequence[int]) -> None:
        """Queue an addition."""
        self._queue.append(Addition(address, blocks))
        self.blocks += len(blocks)
        self._trim()

    def take(self, most_blocks: int) -> list[Addition]:
        """Remove and return the oldest additions: up to `most_blocks` blocks, or one larger addition."""
        additions: list[Addition] = []
        remaining = most_blocks
        while self._queue and (not additions or len(self._queue[0].blocks) <= remaining):
            addition = self._queue.popleft()
            remaining -= len(addition.blocks)
            self.blocks -= len(addition.blocks)
            additions.append(addition)
        return additions

    def put_back(self, additions: Sequence[Addition]) -> None:
        """Queue additions that could not be sent, before all later ones."""
        self._queue.extendleft(reversed(additions))
        self.blocks += sum(len(addition.blocks) for addition in additions)
        self._trim()

    def _trim(self) -> None:
        while self.blocks > self._limit and self._queue:
            size = len(self._queue.popleft().blocks)
            self.blocks -= size
            self.dropped += size


class Budget:
    """Blocks that may be taken over now: a bucket that fills by `per_second`, up to one second's blocks."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._blocks = per_second
        self._at = now

    def available(self, now: float) -> int:
        """Return the number of blocks; times are seconds on one steady clock."""
        self._blocks = min(self._per_second, self._blocks + max(0.0, now - self._at) * self._per_second)
        self._at = now
        return int(self._blocks)

    def spend(self, count: int) -> None:
        """Remove blocks; a balance below 0 is made up by the next seconds."""
        self._blocks -= count
