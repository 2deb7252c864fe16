"""Level 1: which endpoints had the leading part of a prompt, by a mark of its first bytes.

It serves prompts for which level 2, the block index, has no answer: no endpoint holds their blocks any more.
An engine may keep such a prefix longer than the index does (in host memory, on disk), and the last one that
had it is the best guess. Prompts shorter than a block are not looked up: computing them again takes less than
to wait behind one other request.

The filter before the map lets a prompt in at its second appearance only, so that prompts that come once, most
of a workload without reuse, do not push out the others. Two filters take turns, which forgets old marks
without deleting. A prompt whose beginning is warm at its endpoint surely comes again.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.prompt.blocks import blocks_within, units

if TYPE_CHECKING:
    from collections.abc import Sequence

_BITS_PER_KEY: Final = 16
_WORD_BITS: Final = 64
_RECORD_EVERY: Final = 8
"""When the map is full, one in 8 parts that come again is recorded."""
_64_BITS: Final = 2**64 - 1
_FILTER_FACTOR: Final = 8
"""Keys that the filter remembers for each entry of the map."""


def leading_mark(
    text: bytes, identity: bytes, blocks: Sequence[int], block_bytes: int, leading_bytes: int = 4096
) -> tuple[int, int]:
    """Return what stands for a leading part in this process, never 0, and how many whole blocks are in it.

    64 bits tell identity (model, salt, adapter, tenant) and first bytes apart, as the blocks' hashes do: they
    combine the last of these blocks, whose hash identifies all before it, and the bytes behind it.
    """
    whole = min(len(blocks), blocks_within(leading_bytes // block_bytes))
    mark = blocks[whole - 1] if whole else hash(identity)
    return (mark ^ hash(text[units(whole) * block_bytes : leading_bytes])) & _64_BITS or 1, whole


class AgeingFilter:
    """Whether a key was added lately: one of the last `entries` to `2 * entries` keys, surely; others hardly.

    Two blocked Bloom filters (Putze, Sanders and Singler, 2007) with a word for each key: 4 bytes for each of
    `entries`, both together. When both are full, about 1 in 110 keys is taken for an added one by mistake.
    """

    def __init__(self, entries: int) -> None:
        if entries < 1:
            raise ValueError(f"entries {entries}: allowed: 1 and above")
        self._entries = entries
        self._words = max(1, entries * _BITS_PER_KEY // _WORD_BITS)
        self._young = np.zeros(self._words, np.uint64).data
        self._old = np.zeros(self._words, np.uint64).data
        self._added = 0

    @property
    def nbytes(self) -> int:
        """Bytes of both filters."""
        return self._young.nbytes + self._old.nbytes

    def __contains__(self, key: int) -> bool:
        word, bits = self._place(key)
        return self._young[word] & bits == bits or self._old[word] & bits == bits

    def add(self, key: int) -> bool:
        """Add a key, or make it young again; return whether it was there."""
        word, bits = self._place(key)
        if self._young[word] & bits == bits:
            return True
        if self._added >= self._entries:
            self._young, self._old = np.zeros(self._words, np.uint64).data, self._young
            self._added = 0
        self._young[word] |= bits
        self._added += 1
        return bool(self._old[word] & bits == bits)

    def _place(self, key: int) -> tuple[int, int]:
        """Return a word and five of its bits. Keys are marks: their 64 bits are as good as random."""
        bits = (
            1 << (key & 63)
            | 1 << (key >> 6 & 63)
            | 1 << (key >> 12 & 63)
            | 1 << (key >> 18 & 63)
            | 1 << (key >> 24 & 63)
        )
        return (key >> 30) % self._words, bits


class LeadingMap:
    """Mark of a leading part to the endpoints that had it, the last one first. Bounded."""

    def __init__(self, entries: int = 16_384, endpoints_each: int = 4) -> None:
        """About 0.3 KB for each of `entries`, the filter's 32 bytes included."""
        self._filter = AgeingFilter(entries * _FILTER_FACTOR)
        self._entries = entries
        self._endpoints_each = endpoints_each
        self._parts: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        """By mark the numbers of its endpoints, the last one first. The longest unused mark is first."""
        self._misses = 0
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        """A number has one owner ever, so a forgotten endpoint disappears from all entries with it."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._parts)

    def holders(self, mark: int) -> tuple[str, ...]:
        """Return the endpoints that had a part, the last one first; empty for an unknown part."""
        numbers = self._parts.get(mark)
        if numbers is None:
            return ()
        self._parts.move_to_end(mark)
        return tuple(name for number in numbers if (name := self._names.get(number)) is not None)

    def record(self, mark: int, address: str, *, in_use: bool = False) -> None:
        """Note that an endpoint had a part; of one that comes for the first time only that is remembered.

        `in_use`: it is not the first time, the part is warm there. A full map takes few of those that it does
        not contain, because more parts in use than fit would push each other out.
        """
        parts, numbers = self._parts, self._parts.get(mark)
        if numbers is None:
            if in_use:
                self._misses += 1
                if len(parts) >= self._entries and self._misses % _RECORD_EVERY:
                    return
            if not self._filter.add(mark) and not in_use:
                return
            if len(parts) >= self._entries:
                parts.popitem(last=False)
            numbers = ()
        else:
            parts.move_to_end(mark)
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = self._next
            self._names[number] = address
            self._next += 1
        elif numbers[:1] == (number,):
            return
        others = [other for other in numbers if other != number and other in self._names]
        parts[mark] = (number, *others[: self._endpoints_each - 1])

    def take_back(self, mark: int, address: str) -> None:
        """Undo that an endpoint had a part."""
        numbers, number = self._parts.get(mark), self._numbers.get(address)
        if numbers is not None and number is not None:
            self._parts[mark] = tuple(other for other in numbers if other != number)

    def forget(self, address: str) -> None:
        """Remove an endpoint."""
        number = self._numbers.pop(address, None)
        if number is not None:
            del self._names[number]
