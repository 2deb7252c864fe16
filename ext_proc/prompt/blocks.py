"""Prompt text to chained block hashes."""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
from xxhash import xxh3_64_intdigest

_LENGTH: Final = struct.Struct("<Q")


def identity_of(model: str, salt: str = "", adapter: str = "", tenant: str = "") -> bytes:
    """Return bytes that differ whenever one of the four does: each with its length before it.

    `adapter` is a LoRA adapter that the model's name does not tell; `tenant` is whom the request is from,
    where tenants are not to share what is warm.
    """
    pieces: list[bytes] = []
    for part in (model, salt, adapter, tenant):
        encoded = part.encode("utf-8", "surrogatepass")
        pieces += (_LENGTH.pack(len(encoded)), encoded)
    return b"".join(pieces)


def block_hashes(text: bytes, *, identity: bytes, block_bytes: int, max_blocks: int) -> list[int]:
    """Return a 64-bit hash of each full block of `block_bytes`, at most `max_blocks`.

    Each block is hashed with the hash before it as seed, the first one with that of `identity`: equal hashes
    mean equal prefixes under one identity. The bytes behind the last full block do not count.
    """
    if block_bytes < 1:
        raise ValueError(f"block_bytes {block_bytes}: allowed: 1 and above")
    chain = xxh3_64_intdigest(identity)
    count = min(len(text) // block_bytes, max_blocks)
    # One call cuts all blocks: slice by slice the cutting takes as long as the hashing.
    blocks: list[bytes] = np.frombuffer(text, f"V{block_bytes}", count).tolist() if count > 0 else []
    return [chain := xxh3_64_intdigest(block, chain) for block in blocks]
