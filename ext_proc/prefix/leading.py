"""Level 1: which endpoints had the leading part of a prompt, by a digest of its first bytes.

Asked where level 2, the block index, has no answer: of a prompt whose blocks no endpoint holds any more. The
engines may keep such a prefix longer than the index does (in host memory, on disk), and the one that had it
is the best guess. A prompt shorter than a block is not asked for: to compute it again takes less than to wait
behind one other request.

The filter before the map says for most prompts that nobody had them, and it lets a prompt into the map when
it comes for the second time only: prompts that come once, most of a workload without reuse, do not push out
the others. Two filters take turns, so that what is old is forgotten without deleting.
"""

from __future__ import annotations

import hashlib
import struct
from collections import OrderedDict
from typing import Final

import numpy as np

_LENGTH: Final = struct.Struct("<Q")
_BITS_PER_KEY: Final = 16
_WORD_BITS: Final = 64
_FILTER_FACTOR: Final = 8
"""Keys that the filter remembers for each entry of the map."""


def leading_key(text: bytes, identity: bytes, leading_bytes: int = 4096) -> bytes:
    """Return 32 bytes (BLAKE2b) that tell identity (model, salt, adapter, tenant) and first bytes apart."""
    digest = hashlib.blake2b(_LENGTH.pack(len(identity)) + identity, digest_size=32)
    digest.update(text[:leading_bytes])
    return digest.digest()


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


class LeadingMap:
    """Digest of a leading part to the endpoints that had it, the last one first. Bounded."""

    def __init__(self, entries: int = 16_384, endpoints_each: int = 4) -> None:
        """About 0.3 KB for each of `entries`, the filter's 32 bytes included."""
        self._filter = AgeingFilter(entries * _FILTER_FACTOR)
        self._entries = entries
        self._endpoints_each = endpoints_each
        self._had: OrderedDict[bytes, tuple[int, ...]] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        """Numbers are given once only: an endpoint that is forgotten takes its number out of all entries."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._had)

    def holders(self, key: bytes) -> tuple[str, ...]:
        """Return who had it, the last one first; empty when nobody is known to."""
        if key not in self._filter:
            return ()
        had = self._had.get(key)
        if had is None:
            return ()
        self._had.move_to_end(key)
        return tuple(name for number in had if (name := self._names.get(number)) is not None)

    def record(self, key: bytes, address: str) -> None:
        """Note that an endpoint had it; a key that comes for the first time is only remembered as such."""
        if not self._filter.add(key):
            return
        number = self._numbers.get(address)
        if number is None:
            number = self._numbers[address] = self._next
            self._names[number] = address
            self._next += 1
        before = self._had.pop(key, ())
        others = [other for other in before if other != number and other in self._names]
        self._had[key] = (number, *others[: self._endpoints_each - 1])
        if len(self._had) > self._entries:
            self._had.popitem(last=False)

    def forget(self, address: str) -> None:
        """Name an endpoint no more."""
        number = self._numbers.pop(address, None)
        if number is not None:
            del self._names[number]
