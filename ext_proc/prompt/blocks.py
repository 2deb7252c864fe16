"""Prompt text to chained block hashes.

The first `_EQUAL` blocks have `block_bytes` each; from there on, each `_EACH` have twice as many as those
before them. So a block is at most a 32nd of the text before it, which is as exact as predictions need, and a
prompt of 220 KB has 183 blocks instead of 880. A unit is the length of a first block, `block_bytes`.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_LENGTH: Final = struct.Struct("<Q")
_EQUAL: Final = 64
_EACH: Final = 32
_LENGTHS: Final = 10
"""After the first: the longest prompt that the settings allow, 65,536 units, has exactly these blocks."""

ENDS: Final[NDArray[np.int64]] = np.cumsum(
    [0] + [1] * _EQUAL + [1 << length for length in range(1, _LENGTHS + 1) for _ in range(_EACH)]
)
"""By number of leading blocks: their length in units."""
_ENDS: Final[list[int]] = ENDS.tolist()


@lru_cache(16)
def ends_in_bytes(block_bytes: int) -> NDArray[np.float64]:
    """Return the bytes of leading blocks, by their number."""
    return (ENDS * block_bytes).astype(np.float64)


def units(blocks: int) -> int:
    """Return the length of leading blocks in units."""
    return _ENDS[blocks]


def blocks_within(length: int) -> int:
    """Return how many leading blocks fit into a length in units."""
    return bisect_right(_ENDS, length) - 1


def runs_of(blocks: Sequence[int], length: int) -> NDArray[np.uint64]:
    """Return a number for each leading run of `length` units that blocks show: equal ones mean equal runs."""
    ends = np.arange(length, units(len(blocks)) + 1, length)
    at = ENDS.searchsorted(ends)
    # A run that ends inside a block is as long as the block, but another number.
    return np.array(blocks, np.uint64)[at - 1] ^ (ENDS[at] - ends).astype(np.uint64)


def identity_of(model: str, salt: str = "", adapter: str = "", tenant: str = "") -> bytes:
    """Return bytes that differ whenever one of the four does: each with its length before it.

    `adapter` is a LoRA adapter that the model's name does not tell; `tenant` is whom the request is from,
    where tenants are not to share what is warm.
    """
    short = len(model) + len(salt) + len(adapter) + len(tenant) <= _SHORT_CHARS
    return (_identity_of_short if short else _identity)(model, salt, adapter, tenant)


def _identity(*parts: str) -> bytes:
    pieces: list[bytes] = []
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        pieces += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(pieces)


_SHORT_CHARS: Final = 256
"""Clients choose the parts: longer ones would fill the memory with their bytes."""
_identity_of_short: Final = lru_cache(1024)(_identity)


def block_hashes(text: bytes, *, identity: bytes, block_bytes: int, max_blocks: int) -> list[int]:
    """Return a 64-bit hash of each full block, within `max_blocks` units.

    Each block is hashed with the hash before it as seed, the first one with that of `identity`: equal hashes
    mean equal prefixes under one identity. The bytes behind the last full block do not count.
    """
    if block_bytes < 1:
        raise ValueError(f"block_bytes {block_bytes}: allowed: 1 and above")
    chain = xxh3_64_intdigest(identity)
    left = min(len(text) // block_bytes, max_blocks, _ENDS[-1])
    at, width, most, blocks = 0, 1, _EQUAL, list[bytes]()
    while (count := min(left // width, most)) > 0:
        # One call cuts many blocks: slice by slice the cutting takes as long as the hashing.
        blocks += np.frombuffer(text, f"V{width * block_bytes}", count, at * block_bytes).tolist()
        at += count * width
        left -= count * width
        width, most = 2 * width, _EACH
    return [chain := xxh3_64_intdigest(block, chain) for block in blocks]
