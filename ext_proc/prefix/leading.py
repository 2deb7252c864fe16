"""Level 1: which endpoints had the leading part of a prompt, by a digest of its first bytes.

Asked where level 2, the block index, has no answer: of a prompt whose blocks no endpoint holds any more. The
engines may keep such a prefix longer than the index does (in host memory, on disk), and the one that had it
is the best guess. A prompt shorter than a block is not asked for: to compute it again takes less than to wait
behind one other request.

The filter before the map lets a prompt into it when it comes for the second time only: prompts that come
once, most of a workload without reuse, do not push out the others. Two filters take turns, so that what is
old is forgotten without deleting. A prompt whose beginning is warm where it goes comes again for certain, and
those that the map knows are told by a mark, without a digest.
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
_WANTED_EACH: Final = 8
"""One in so many parts that come again is recorded when the map is full."""
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

    It is made of the last of these blocks, whose hash tells all before it, and of the bytes behind it: most
    prompts are longer, and of whole blocks there.
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
    """A leading part: who had it, the last one first, and the mark by which it is known again."""

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
        self._wanted = 0
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        """Numbers are given once only: an endpoint that is forgotten takes its number out of all entries."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._parts)

    def holders(self, key: bytes) -> tuple[str, ...]:
        """Return who had it, the last one first; empty when nobody is known to."""
        part = self._parts.get(key)
        if part is None:
            return ()
        self._parts.move_to_end(key)
        return tuple(name for number in part.numbers if (name := self._names.get(number)) is not None)

    def touch(self, mark: int, address: str) -> bool:
        """Note that an endpoint has a part once more, by its `leading_mark`; whether to `record` it instead.

        So that its key need not be made with each request. As long as the map is full, few that are new are
        wanted: more parts in use than fit would push each other out.
        """
        part = self._marked.get(mark)
        if part is None:
            self._wanted += 1
            return len(self._parts) < self._entries or self._wanted % _WANTED_EACH == 0
        self._parts.move_to_end(part.key)
        self._name(part, address)
        return False

    def record(self, key: bytes, address: str, mark: int = 0, *, again: bool = False) -> None:
        """Note that an endpoint had it; a key that comes for the first time is only remembered as such.

        With `again` it is known not to be the first time. Keys and marks belong together; 0 is none.
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
        """Note that an endpoint did not have a part after all."""
        part, number = self._marked.get(mark), self._numbers.get(address)
        if part is not None and number is not None:
            part.numbers = tuple(other for other in part.numbers if other != number)

    def forget(self, address: str) -> None:
        """Name an endpoint no more."""
        number = self._numbers.pop(address, None)
        if number is not None:
            del self._names[number]

    def _name(self, part: _Part, address: str) -> None:
        """Let an endpoint be the last one that had a part."""
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = self._next
            self._names[number] = address
            self._next += 1
        elif part.numbers[:1] == (number,):
            return
        others = [other for other in part.numbers if other != number and other in self._names]
        part.numbers = (number, *others[: self._endpoints_each - 1])
