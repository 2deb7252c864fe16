"""Prefix keys to the bits of those who hold them."""

from __future__ import annotations

from typing import Final, TypeAlias

SHARDS: Final = 256
"""Dictionaries that hold all prefixes: a single one would stop the loop whenever it grows."""
Masks: TypeAlias = list[dict[int, int]]


def empty() -> Masks:
    """Return masks of nothing."""
    return [{} for _ in range(SHARDS)]


def drop(shards: Masks, key: int, bit: int) -> None:
    """Take a slot's bit off a mask, and the mask away with the last bit."""
    masks = shards[key % SHARDS]
    left = masks.get(key, 0) & ~bit
    if left:
        masks[key] = left
    else:
        masks.pop(key, None)


def walk(ladder: list[int], slots: int, fast: Masks, slow: Masks | None) -> dict[int, int]:
    """Return by slot number how many leading steps of the ladder it holds; 0 is no entry."""
    depths: dict[int, int] = {}
    alive, depth = slots, 0
    for depth, key in enumerate(ladder):
        mask = fast[key % SHARDS].get(key, 0)
        if slow is not None:
            mask |= slow[key % SHARDS].get(key, 0)
        gone = alive & ~mask
        if gone:
            if depth:
                _note(depths, gone, depth)
            alive &= mask
            if not alive:
                return depths
    _note(depths, alive, depth + 1)
    return depths


def _note(depths: dict[int, int], mask: int, depth: int) -> None:
    while mask:
        low = mask & -mask
        depths[low.bit_length() - 1] = depth
        mask ^= low
