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

from ext_proc.prefix.table import BlockTable, key_of, keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_HOLE: Final = 0
_FIRST_ROOM: Final = 64
_SLAB_BITS: Final = 7


class Recency:
    """Blocks from the least to the most recently used."""

    __slots__ = ("_begin", "_end", "_fronts", "_order", "_view", "size")

    def __init__(self) -> None:
        self.size = 0
        self._order = np.zeros(_FIRST_ROOM, np.uint64)
        self._view = self._order.data
        self._begin = self._end = 0
        self._fronts = BlockTable(_SLAB_BITS)
        """A run's first block to its place plus one; entries of old places stay until `_squeeze`."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return int(self._order.nbytes) + self._fronts.nbytes

    def touch(self, chain: Sequence[int]) -> NDArray[np.uint64]:
        """Make a prompt's blocks the most recently used; return its tail that is new."""
        count, moved = len(chain), 0
        if self._end + count > self._order.size:
            self._squeeze(count)
        order, view, fronts, begin, end = self._order, self._view, self._fronts, self._begin, self._end
        top = end + count
        while moved < count:
            front = key_of(chain[moved])
            last = fronts.get(front) - 1
            if not begin <= last < end or view[last] != front:
                break
            length = self._common(last, chain, moved)
            if length == count and last + 1 == end:
                return order[:0]
            first = last + 1 - length
            order[top - length : top] = order[first : last + 1]
            order[first : last + 1] = _HOLE
            if first > begin and (below := view[first - 1]):
                fronts.put(below, first)
            if moved:
                fronts.remove(front)
            moved += length
            top -= length
        fresh = keys_of(chain[moved:])
        order[end:top] = fresh[::-1]
        self._end += count
        fronts.put(key_of(chain[0]), self._end)
        self.size += fresh.size
        return fresh

    def cut(self, chain: Sequence[int], kept: int) -> NDArray[np.uint64]:
        """Remove a prompt's blocks behind the `kept` leading ones and return those that were here.

        No other prompt may extend the removed blocks.
        """
        count, before = len(chain), len(chain) - self.touch(chain).size
        kept = min(kept, before)
        # As the most recently used ones they stand last, the head at the end.
        self._order[self._end - count : self._end - kept] = _HOLE
        self.size -= count - kept
        if not self.size:
            self._begin = self._end = 0
            self._fronts = BlockTable(_SLAB_BITS)
        return keys_of(chain[kept:before])

    def drop_oldest(self, count: int) -> NDArray[np.uint64]:
        """Remove the `count` least recently used blocks and return them."""
        count = min(count, self.size)
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
        self.size -= count
        if self.size:
            self._begin += int(at[count - 1]) + 1
        else:
            self._begin = self._end = 0
            self._fronts = BlockTable(_SLAB_BITS)
        return dropped

    def _common(self, last: int, chain: Sequence[int], begin: int) -> int:
        """Return how many blocks of `chain` from `begin` on the order has from `last` downwards, at least 1.

        A prompt that uses a block uses all before it, so each block is above the one that follows it in the
        prompt: where two of them are as far apart as in the prompt, all between are there too.
        """
        view, most = self._view, min(len(chain) - begin, last + 1 - self._begin)
        # The longest run first: most prompts are there as a whole, or extend one that is.
        low, high, middle = 1, most + 1, most
        while high - low > 1:
            if view[last + 1 - middle] == key_of(chain[begin + middle - 1]):
                low = middle
            else:
                high = middle
            middle = low + high >> 1
        # Only hashes that collide, or those of a broken peer, leave a hole between.
        return low if np.count_nonzero(self._order[last + 1 - low : last + 1]) == low else 1

    def _squeeze(self, coming: int) -> None:
        """Close the holes, and make room for a quarter more."""
        part = self._order[self._begin : self._end]
        stays = part != _HOLE
        room = self.size * 5 // 4 + 2 * coming + _FIRST_ROOM
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
        self._order[: self.size] = kept
        self._order[self.size :] = _HOLE
        self._begin, self._end = 0, self.size
