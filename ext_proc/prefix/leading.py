"""Level 1: which endpoints had the leading part of a prompt, by a digest of its first bytes.

It serves prompts for which level 2, the block index, has no answer: no endpoint holds their blocks any more.
An engine may keep such a prefix longer than the index does (in host memory, on disk), and the last one that
had it is the best guess. Prompts shorter than a block are not looked up: computing them again takes less than
to wait behind one other request.

The filter before the map lets a prompt in at its second appearance only, so that prompts that come once, most
of a workload without reuse, do not push out the others. Two filters take turns, which forgets old keys
without deleting. A prompt whose beginning is warm at its endpoint surely comes again, and a mark identifies
those that the map contains without a digest.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_LENGTH: Final = struct.Struct("<Q")
_BITS_PER_KEY: Final = 16
_WORD_BITS: Final = 64
_RECORD_EVERY: Final = 8
"""When the map is full, one in 8 parts that come again is recorded."""
_FILTER_FACTOR: Final = 8
"""Keys that the filter remembers for each entry of the map."""


def leading_key(text: bytes, identity: bytes, leading_bytes: int = 4096) -> bytes:
    """Return 32 bytes (BLAKE2b) that tell identity (model, salt, adapter, tenant) and first bytes apart."""
    digest = hashlib.blake2b(_LENGTH.pack(len(identity)) + identity, digest_size=32)
    digest.update(text[:leading_bytes])
    return digest.digest()


def leading_mark(
    text: bytes, identity: bytes, blocks: Sequence[int], block_bytes: int, leading_bytes: int = 4096
) -> tuple[int, int]:
    """Return what stands for the `leading_key` in this process, never 0, and how many whole blocks are in it.

    It combines the last of these blocks, whose hash identifies all before it, and the bytes behind it.
    """
    whole = min(len(blocks), leading_bytes // block_bytes)
    mark = blocks[whole - 1] if whole else hash(identity)
    return mark ^ hash(text[whole * block_bytes : leading_bytes]) or 1, whole


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

    def __contains__(self, key: bytes) -> bool:
        word, bits = self._place(key)
        return self._young[word] & bits == bits or self._old[word] & bits == bits

    def add(self, key: bytes) -> bool:
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

    def _place(self, key: bytes) -> tuple[int, int]:
        """Return a word and five of its bits. Keys are digests: their bytes are as good as random."""
        drawn = int.from_bytes(key[:16], "little")
        bits = (
            1 << (drawn & 63)
            | 1 << (drawn >> 6 & 63)
            | 1 << (drawn >> 12 & 63)
            | 1 << (drawn >> 18 & 63)
            | 1 << (drawn >> 24 & 63)
        )
        return (drawn >> 64) % self._words, bits


class _Part:
    """A leading part with its mark, and the numbers of the endpoints that had it, the last one first."""

    __slots__ = ("key", "mark", "numbers")

    def __init__(self, key: bytes, mark: int) -> None:
        self.key = key
        self.mark = mark
        self.numbers: tuple[int, ...] = ()


class LeadingMap:
    """Digest of a leading part to the endpoints that had it, the last one first. Bounded."""

    def __init__(self, entries: int = 16_384, endpoints_each: int = 4) -> None:
        """About 0.5 KB for each of `entries`, the filter's 32 bytes included."""
        self._filter = AgeingFilter(entries * _FILTER_FACTOR)
        self._entries = entries
        self._endpoints_each = endpoints_each
        self._parts: OrderedDict[bytes, _Part] = OrderedDict()
        self._marked: dict[int, _Part] = {}
        self._misses = 0
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        """A number has one owner ever, so a forgotten endpoint disappears from all entries with it."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._parts)

    def holders(self, key: bytes) -> tuple[str, ...]:
        """Return the endpoints that had a part, the last one first; empty for an unknown part."""
        part = self._parts.get(key)
        if part is None:
            return ()
        self._parts.move_to_end(key)
        return tuple(name for number in part.numbers if (name := self._names.get(number)) is not None)

    def touch(self, mark: int, address: str) -> bool:
        """Note that an endpoint has a part once more, by its `leading_mark`; return whether to `record` it.

        This saves the key of a part that the map contains. A full map takes few new parts, because more parts
        in use than fit would push each other out.
        """
        part = self._marked.get(mark)
        if part is None:
            self._misses += 1
            return len(self._parts) < self._entries or self._misses % _RECORD_EVERY == 0
        self._parts.move_to_end(part.key)
        self._name(part, address)
        return False

    def record(self, key: bytes, address: str, mark: int = 0, *, again: bool = False) -> None:
        """Note that an endpoint had a part; of a key that comes for the first time only that is remembered.

        `again`: it is not the first time. Keys and marks belong together; 0 is no mark.
        """
        part = self._parts.get(key)
        if part is None:
            if not self._filter.add(key) and not again:
                return
            part = self._parts[key] = _Part(key, mark)
            if len(self._parts) > self._entries:
                _, oldest = self._parts.popitem(last=False)
                self._marked.pop(oldest.mark, None)
        else:
            self._parts.move_to_end(key)
        if mark:
            if part.mark != mark:
                self._marked.pop(part.mark, None)
                part.mark = mark
            self._marked[mark] = part
        self._name(part, address)

    def take_back(self, mark: int, address: str) -> None:
        """Undo that an endpoint had a part."""
        part, number = self._marked.get(mark), self._numbers.get(address)
        if part is not None and number is not None:
            part.numbers = tuple(other for other in part.numbers if other != number)

    def forget(self, address: str) -> None:
        """Remove an endpoint."""
        number = self._numbers.pop(address, None)
        if number is not None:
            del self._names[number]

    def _name(self, part: _Part, address: str) -> None:
        """Make an endpoint the last one that had a part."""
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = self._next
            self._names[number] = address
            self._next += 1
        elif part.numbers[:1] == (number,):
            return
        others = [other for other in part.numbers if other != number and other in self._names]
        part.numbers = (number, *others[: self._endpoints_each - 1])
