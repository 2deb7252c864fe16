"""Additions that wait to be sent: bounded, the oldest are dropped. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from ext_proc.shared.batch import Addition

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outbox:
    """A queue of at most `limit_blocks` blocks. Single-threaded; `add` is called for each request."""

    def __init__(self, limit_blocks: int) -> None:
        self._limit = limit_blocks
        self._waiting: deque[Addition] = deque()
        self.blocks = 0
        """That wait now."""
        self.dropped = 0
        """Blocks dropped since the start."""

    def add(self, address: str, blocks: Sequence[int]) -> None:
        """Queue an addition."""
        self._waiting.append(Addition(address, blocks))
        self.blocks += len(blocks)
        self._trim()

    def take(self, most_blocks: int) -> list[Addition]:
        """Take the oldest additions, up to `most_blocks` blocks but at least one addition if any waits."""
        taken: list[Addition] = []
        left = most_blocks
        while self._waiting and (not taken or len(self._waiting[0].blocks) <= left):
            addition = self._waiting.popleft()
            left -= len(addition.blocks)
            self.blocks -= len(addition.blocks)
            taken.append(addition)
        return taken

    def put_back(self, additions: Sequence[Addition]) -> None:
        """Queue again what could not be sent, before what came since."""
        self._waiting.extendleft(reversed(additions))
        self.blocks += sum(len(addition.blocks) for addition in additions)
        self._trim()

    def _trim(self) -> None:
        while self.blocks > self._limit and self._waiting:
            size = len(self._waiting.popleft().blocks)
            self.blocks -= size
            self.dropped += size
