"""Who is warm, as an array over a pool: the same answer as a mapping, without a thousand dict entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ext_proc.prefix.index import PrefixIndex

_FEW: Final = 16
"""Holders of a level that are set fastest one after the other."""


class DepthColumn:
    """The index as seen by a fixed list of endpoints."""

    def __init__(self, index: PrefixIndex, addresses: Sequence[str]) -> None:
        self._index = index
        self._addresses = tuple(addresses)
        self._slots: NDArray[np.intp] = np.zeros(0, np.intp)
        self._in_order = False
        """Whether the endpoints' slots are the first ones, in the same order."""
        self._generation = -1

    def matched(self, blocks: Sequence[int]) -> NDArray[np.int64]:
        """Return how many leading blocks of `blocks` each endpoint holds, in their order."""
        index = self._index
        if self._generation != index.generation:
            self._slots = np.array([index.slot(address) for address in self._addresses], np.intp)
            self._in_order = bool((self._slots == np.arange(self._slots.size)).all())
            self._generation = index.generation
        # One more than there are slots: those without one read the last, which nobody sets.
        depths = np.zeros(index.slots + 1, np.int64)
        for depth, mask in index.levels(blocks):
            if mask.bit_count() <= _FEW:
                while mask:
                    slot = mask.bit_length() - 1
                    depths[slot] = depth
                    mask ^= 1 << slot
            else:
                octets = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
                holders = np.unpackbits(np.frombuffer(octets, np.uint8), bitorder="little")
                np.putmask(depths[: holders.size], holders[: depths.size].view(np.bool_), depth)
        return depths[: self._slots.size] if self._in_order else depths[self._slots]
