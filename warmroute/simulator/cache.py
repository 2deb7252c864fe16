"""The prefix cache: a fixed number of KV blocks, named by hash, counted while in use, evicted by age.

A block is in use (some running request refers to it), idle (complete, without a user, still found by
its name, the first to go when room is needed) or free. As in vLLM, idle blocks count as room. Unlike vLLM,
two requests that compute the same block at the same time end up with one copy of it, not two.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BlockCache:
    """Counts and names of `num_blocks` blocks, no contents. Names are chained hashes: equal, equal prefix."""

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; at least 1")
        self.num_blocks = num_blocks
        self.failing = False
        """While true no block can be had, as when the memory is out."""
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._unnamed = 0

    @property
    def used(self) -> int:
        """Blocks in use by running requests."""
        return len(self._users) + self._unnamed

    @property
    def room(self) -> int:
        """Blocks that no running request uses."""
        return 0 if self.failing else self.num_blocks - self.used

    @property
    def idle(self) -> int:
        """Warm blocks without a user."""
        return len(self._idle)

    def match(self, chain: Sequence[int], limit: int) -> int:
        """How many of the first `limit` blocks of `chain` are here, without a gap."""
        users, idle = self._users, self._idle
        count = 0
        for name in chain[:limit]:
            if name not in users and name not in idle:
                break
            count += 1
        return count

    def admit(self, chain: Sequence[int], matched: int, reserve: int) -> bool:
        """Use the first `matched` blocks of `chain` if `reserve` more could be had afterwards.

        False leaves everything as it was, ages included.
        """
        names = chain[:matched]
        woken = sum(1 for name in names if name in self._idle)
        if self.failing or self.room - woken < reserve:
            return False
        for name in names:
            self._use(name)
        return True

    def take(self, count: int) -> bool:
        """Take `count` unnamed blocks, evicting the oldest idle ones; False, and none, without room."""
        if self.failing or self.room < count:
            return False
        for _ in range(self.used + len(self._idle) + count - self.num_blocks):
            self._idle.popitem(last=False)
        self._unnamed += count
        return True

    def name(self, name: int) -> None:
        """One unnamed block in use is complete: from now on `name` finds it."""
        self._unnamed -= 1
        self._use(name)

    def release(self, names: Sequence[int], unnamed: int) -> None:
        """Release a request's blocks. The tail goes first, so prefixes outlive their continuations."""
        self._unnamed -= unnamed
        users = self._users
        for name in reversed(names):
            left = users[name] - 1
            if left:
                users[name] = left
            else:
                del users[name]
                self._idle[name] = None

    def drop_idle(self) -> None:
        """Forget every warm block without a user."""
        self._idle.clear()

    def _use(self, name: int) -> None:
        count = self._users.get(name, 0)
        if not count:
            self._idle.pop(name, None)
        self._users[name] = count + 1
