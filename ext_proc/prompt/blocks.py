"""Prompt text to chained block hashes."""

from __future__ import annotations

import struct
from typing import Final

from xxhash import xxh3_64_intdigest

_LENGTH: Final = struct.Struct("<Q")


def identity_of(model: str, salt: str) -> bytes:
    """Return bytes that differ whenever model or salt differ: the model's length, the model, the salt."""
    name = model.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(name)) + name + salt.encode("utf-8", "surrogatepass")


def block_hashes(text: bytes, *, identity: bytes, block_bytes: int, max_blocks: int) -> list[int]:
    """Return a 64-bit hash of each full block of `block_bytes`, at most `max_blocks`.

    Each block is hashed with the hash before it as seed, the first one with that of `identity`: equal hashes
    mean equal prefixes under one model and salt. The bytes behind the last full block do not count.
    """
    if block_bytes < 1:
        raise ValueError(f"block_bytes {block_bytes}: allowed: 1 and above")
    chain = xxh3_64_intdigest(identity)
    hashes: list[int] = []
    for start in range(0, min(len(text) // block_bytes, max_blocks) * block_bytes, block_bytes):
        chain = xxh3_64_intdigest(text[start : start + block_bytes], chain)
        hashes.append(chain)
    return hashes
