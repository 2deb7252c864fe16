"""One endpoint's blocks in the order of their use, at about 10 bytes a block.

The order is an array: a prompt's blocks are appended from the tail to the head, so the last block used is the
last one, and of one prompt a tail goes before its head. A block that is used again leaves a hole; when the
array is full, the holes are squeezed out.

A block's hash identifies the whole prefix before it, so the blocks form a forest, and the array cuts it into
runs: pieces of a path, side by side. A table has the place of each run's first block, and bisection finds the
others. So a prompt of 512 warm blocks costs a few look-ups and two copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.prefix.table import RESERVED, BlockTable, key_of, keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_HOLE: Final = 0
_FIRST_ROOM: Final = 64
_SLAB_BITS: Final = 7
_BLOCK_BYTES: Final = 44
"""Of a hash in a list."""
_MOST_WAITING: Final = 32
"""Prompts that wait for the order at most."""
_MOST_WAITING_BLOCKS: Final = 1024
"""Of these prompts: some 45 KB."""
_NO_ORDER: Final = np.zeros(0, np.uint64)
_NO_VIEW: Final = _NO_ORDER.data
_NO_FRONTS: Final = BlockTable(_SLAB_BITS)
"""Of every endpoint that has no block yet: a large fleet joins within one tick."""


class Recency:
    """Blocks from the least to the most recently used."""

    __slots__ = (
        "_begin", "_end", "_fronts", "_new", "_order", "_size", "_view", "_waiting", "_waiting_blocks",
    )  # fmt: skip

    def __init__(self) -> None:
        self._size = self._new = 0
        """Blocks in the order, and those of the prompts that wait which are not in it."""
        self._order = _NO_ORDER
        self._view = _NO_VIEW
        self._begin = self._end = 0
        self._fronts = _NO_FRONTS
        """A run's first block to its place plus one; entries of old places stay until `_squeeze`."""
        self._waiting: list[Sequence[int]] = []
        """Prompts whose use the order does not show, the last one last."""
        self._waiting_blocks = 0

    @property
    def size(self) -> int:
        """Blocks."""
        return self._size + self._new

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, and of the prompts that wait."""
        return int(self._order.nbytes) + self._fronts.nbytes + _BLOCK_BYTES * self._waiting_blocks

    def touch(self, chain: Sequence[int], new: int) -> None:
        """Make a prompt's blocks the most recently used; `new` is the number of those that are new.

        Only evictions need the order. So some prompts wait for it: of those with a common beginning, it moves
        once then.
        """
        self._waiting.append(chain)
        self._waiting_blocks += len(chain)
        self._new += new
        if len(self._waiting) >= _MOST_WAITING or self._waiting_blocks > _MOST_WAITING_BLOCKS:
            self._settle()

    def _settle(self) -> None:
        """Bring the order up to the last use: each block goes where the last prompt with it puts it."""
        chains, coming = self._waiting, self._waiting_blocks
        if not chains:
            return
        self._waiting, self._waiting_blocks, self._new = [], 0, 0
        if self._end + coming > self._order.size:
            self._squeeze(coming)
        end, heads, top = self._end, dict[int, int](), self._end + coming
        for chain in reversed(chains):
            moved, count = 0, len(chain)
            # Later prompts have moved their common beginning.
            while moved < count and (place := heads.get(key_of(chain[moved]), 0)):
                moved += self._common(place - 1, chain, moved, top)
            if moved < count:
                heads[key_of(chain[moved])] = top
                self._move(chain, moved, end, top)
                top -= count - moved
        # What later prompts had moved has left a gap below.
        if gap := top - end:
            order, self._end = self._order, end + coming - gap
            order[end : self._end] = order[top : end + coming]
            order[self._end : end + coming] = _HOLE
        else:
            self._end = end + coming
        for front, place in heads.items():
            self._fronts.put(front, place - gap)

    def _move(self, chain: Sequence[int], moved: int, end: int, top: int) -> None:
        """Put a prompt's blocks from `moved` on, which stand below `end` or are new, below `top`."""
        order, view, fronts, count = self._order, self._view, self._fronts, len(chain)
        begin, bottom = moved, top - (count - moved)
        while moved < count:
            front = key_of(chain[moved])
            last = fronts.get(front) - 1
            if not self._begin <= last < end or view[last] != front:
                fresh = keys_of(chain[moved:])
                order[bottom:top] = fresh[::-1]
                self._size += fresh.size
                return
            length = self._common(last, chain, moved, self._begin)
            first = last + 1 - length
            order[top - length : top] = order[first : last + 1]
            order[first : last + 1] = _HOLE
            if first > self._begin and (below := view[first - 1]):
                fronts.put(below, first)
            if moved > begin:
                fronts.remove(front)
            moved += length
            top -= length

    def cut(self, chain: Sequence[int], kept: int) -> NDArray[np.uint64]:
        """Remove a prompt's blocks behind the `kept` leading ones and return those that were here.

        No other prompt may extend the removed blocks.
        """
        self._settle()
        size, count = self._size, len(chain)
        self.touch(chain, 0)
        self._settle()
        before = count - (self._size - size)
        kept = min(kept, before)
        # As the most recently used ones they stand last, the head at the end.
        self._order[self._end - count : self._end - kept] = _HOLE
        self._size -= count - kept
        if not self._size:
            self._begin = self._end = 0
            self._fronts = BlockTable(_SLAB_BITS)
        return keys_of(chain[kept:before])

    def drop_oldest(self, count: int) -> NDArray[np.uint64]:
        """Remove the `count` least recently used blocks and return them."""
        self._settle()
        count = min(count, self._size)
        if count < 1:
            return self._order[:0]
        window = count + 16
        while True:
            part = self._order[self._begin : min(self._begin + window, self._end)]
            at = np.flatnonzero(part)
            if at.size >= count:
                break
            window *= 4
        dropped: NDArray[np.uint64] = part[at[:count]]
        self._size -= count
        if self._size:
            self._begin += int(at[count - 1]) + 1
        else:
            self._begin = self._end = 0
            self._fronts = BlockTable(_SLAB_BITS)
        return dropped

    def _common(self, last: int, chain: Sequence[int], begin: int, lowest: int) -> int:
        """Return how many blocks of `chain` from `begin` on the order has from `last` to `lowest`, 1 or more.

        A prompt that uses a block uses all before it, so each block is above the one that follows it in the
        prompt: where two of them are as far apart as in the prompt, all between are there too.
        """
        view, most = self._view, min(len(chain) - begin, last + 1 - lowest)
        # The longest run first: most prompts are there as a whole, or extend one that is.
        low, high, middle = 1, most + 1, most
        while high - low > 1:
            block = chain[begin + middle - 1]
            if view[last + 1 - middle] == (block if block >= RESERVED else key_of(block)):
                low = middle
            else:
                high = middle
            middle = low + high >> 1
        # Only hashes that collide, or those of a broken peer, leave a hole between. A hole is the least.
        first = last + 1 - low
        return low if low == 1 or view[first + int(self._order[first : last + 1].argmin())] else 1

    def _squeeze(self, coming: int) -> None:
        """Close the holes, and make room for a quarter more."""
        if self._fronts is _NO_FRONTS:
            self._fronts = BlockTable(_SLAB_BITS)
        part = self._order[self._begin : self._end]
        stays = part != _HOLE
        room = self._size * 5 // 4 + coming + _FIRST_ROOM
        # A copy, because the same array is written in place as long as its size fits.
        kept = part[stays]
        slots, fronts = self._fronts.live()
        at = self._fronts.values_at(slots).astype(np.int64) - 1
        valid = (at >= self._begin) & (at < self._end)
        valid[valid] = self._order[at[valid]] == fronts[valid]
        self._fronts.remove_at(slots[~valid])
        # Those that stay, counted up to a place: its new place, plus one.
        places = np.cumsum(stays, dtype=np.uint32)
        self._fronts.set_at(slots[valid], places[at[valid] - self._begin])
        if not room <= self._order.size <= 2 * room:
            self._order = np.zeros(room, np.uint64)
            self._view = self._order.data
        self._order[: self._size] = kept
        self._order[self._size :] = _HOLE
        self._begin, self._end = 0, self._size
