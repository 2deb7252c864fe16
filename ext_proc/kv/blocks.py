"""Which publisher holds which prefixes: engines' blocks by their own hashes, prefixes by token keys.

A publisher is one data-parallel rank of one endpoint and has a slot. A block's prefix key follows from its
parent's, which is found by the engine's own hash, so no engine's hash function is ever computed anew. The
same hash may be stored several times (engines fill a copy each for two requests at a time) and then has to
be removed as often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from ext_proc.kv.chain import LOW_64, MAX_TOKENS, Chain
from ext_proc.kv.events import Stored, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ext_proc.kv.events import Removed

MIN_STEP_TOKENS: Final = 16
"""Engines with smaller blocks (SGLang's hold one token) are looked up at every so many tokens."""
MAX_ADAPTERS: Final = 4096
_SHARDS: Final = 256
"""Dictionaries that hold all prefixes: a single one would stop the loop whenever it grows."""
_Masks: TypeAlias = "list[dict[int, int]]"


class _Block(msgspec.Struct, gc=False):
    """Unknown to the garbage collector, which would stop the loop to look at millions of them."""

    key: int
    depth: int
    fast: int = 0
    slow: int = 0


class Slot:
    """What one publisher holds."""

    __slots__ = ("bit", "block_tokens", "blocks", "lost", "number", "orphans", "unknown_removals")

    def __init__(self, number: int) -> None:
        self.number = number
        self.bit = 1 << number
        self.blocks: dict[int, _Block] = {}
        self.block_tokens = 0
        self.orphans = 0
        """Blocks that were told without a way to know what precedes them."""
        self.unknown_removals = 0
        self.lost = 0
        """Blocks that were dropped because there were more than the limit."""


class BlockIndex:
    """All publishers' blocks. Single-threaded; memory is bounded by `limit` blocks a slot."""

    def __init__(self, limit: int) -> None:
        self.chain = Chain()
        self.limit = limit
        self.adapters: set[str] = set()
        """Names of LoRA adapters that events have told of."""
        self._fast: _Masks = [{} for _ in range(_SHARDS)]
        self._slow: _Masks = [{} for _ in range(_SHARDS)]
        self._slow_blocks = 0
        self._sizes: dict[int, int] = {}
        """Tokens of a block to the bits of the slots that have such blocks."""
        self._free: list[int] = []
        self._slots = 0

    def open(self) -> Slot:
        """Give out a slot."""
        if self._free:
            return Slot(self._free.pop())
        self._slots += 1
        return Slot(self._slots - 1)

    def close(self, slot: Slot) -> None:
        """Forget a publisher."""
        self.clear(slot)
        self._free.append(slot.number)

    def clear(self, slot: Slot) -> None:
        """Forget what a publisher holds."""
        for block in slot.blocks.values():
            self._forget(slot, block)
        slot.blocks.clear()
        slot.lost = 0
        self._set_size(slot, 0)

    def store(self, slot: Slot, event: Stored) -> list[int]:
        """Take in filled blocks; return the keys of those prefixes that are new in fast memory."""
        if event.adapter and event.adapter not in self.adapters and len(self.adapters) < MAX_ADAPTERS:
            self.adapters.add(event.adapter)
        start = self._start(slot, event)
        if start is None:
            for number in event.hashes:
                self._count_known(slot, number, event.tier)
            return []
        before, depth = start
        if event.tier is Tier.FAST and event.block_tokens > slot.block_tokens:
            self._set_size(slot, event.block_tokens)
        new: list[int] = []
        for number, key in zip(event.hashes, self._keys(event, before, depth), strict=True):
            depth += event.block_tokens
            block = slot.blocks.get(number)
            if block is None:
                block = slot.blocks[number] = _Block(key, depth)
            if event.tier is Tier.FAST and not block.fast:
                new.append(block.key)
            self._count(slot, block, event.tier)
        self._bound(slot)
        return new

    def remove(self, slot: Slot, event: Removed) -> None:
        """Take note of evicted blocks."""
        for number in event.hashes:
            block = slot.blocks.get(number)
            if block is None:
                slot.unknown_removals += 1
                continue
            if event.tier is Tier.FAST and block.fast:
                block.fast -= 1
                if not block.fast:
                    _drop(self._fast, block.key, slot.bit)
            elif event.tier is Tier.SLOW and block.slow:
                block.slow -= 1
                if not block.slow:
                    _drop(self._slow, block.key, slot.bit)
                    self._slow_blocks -= 1
            if not block.fast and not block.slow:
                del slot.blocks[number]

    def holds(self, slot: Slot, key: int) -> bool:
        """Whether a publisher holds a prefix in fast memory."""
        return bool(self._fast[key % _SHARDS].get(key, 0) & slot.bit)

    def matched(self, keys: NDArray[np.uint64], most_blocks: int) -> Mapping[int, tuple[int, int]]:
        """Return, by slot number, how many leading tokens lie in fast memory, and in any.

        `keys` are those of the prompt's prefixes of 1, 2, ... tokens. An engine computes the last token of a
        prompt in any case, so that one never counts. Slots that hold nothing are left out; at most
        `most_blocks` blocks are looked at.
        """
        found: dict[int, tuple[int, int]] = {}
        usable = len(keys) - 1
        for size, slots in self._sizes.items():
            step = step_tokens(size)
            count = min(usable // step, most_blocks)
            if not slots or count < 1:
                continue
            ladder = keys[step - 1 : count * step : step].tolist()
            fast = _walk(ladder, slots, self._fast, None)
            anywhere = _walk(ladder, slots, self._fast, self._slow) if self._slow_blocks else fast
            for number, depth in anywhere.items():
                found[number] = fast.get(number, 0) * step, depth * step
        return found

    def _start(self, slot: Slot, event: Stored) -> tuple[int, int] | None:
        """Return key and length of the prefix before the event's first block; None: nobody can know."""
        if event.tokens is None:
            return None
        key, depth = self.chain.root(event.adapter), 0
        if event.parent is not None:
            parent = slot.blocks.get(event.parent)
            if parent is None:
                return None
            key, depth = parent.key, parent.depth
        return None if depth + len(event.tokens) > MAX_TOKENS else (key, depth)

    def _keys(self, event: Stored, key: int, depth: int) -> list[int]:
        assert event.tokens is not None
        size, count = event.block_tokens, len(event.hashes)
        sums = self.chain.terms(event.tokens, depth).reshape(count, size).sum(axis=1, dtype=np.uint64)
        if event.extras:
            more = [self.chain.further(extra, depth + i * size) for i, extra in enumerate(event.extras)]
            sums += np.array(more, dtype=np.uint64)
        keys = np.cumsum(sums, dtype=np.uint64)
        keys += np.uint64(key & LOW_64)
        listed: list[int] = keys.tolist()
        return listed

    def _count_known(self, slot: Slot, number: int, tier: Tier) -> None:
        """Count a block that is told by its hash alone, if it is known from before."""
        block = slot.blocks.get(number)
        if block is None:
            slot.orphans += 1
        else:
            self._count(slot, block, tier)

    def _count(self, slot: Slot, block: _Block, tier: Tier) -> None:
        key = block.key
        if tier is Tier.FAST:
            if not block.fast:
                masks = self._fast[key % _SHARDS]
                masks[key] = masks.get(key, 0) | slot.bit
            block.fast += 1
        else:
            if not block.slow:
                masks = self._slow[key % _SHARDS]
                masks[key] = masks.get(key, 0) | slot.bit
                self._slow_blocks += 1
            block.slow += 1

    def _bound(self, slot: Slot) -> None:
        for _ in range(len(slot.blocks) - self.limit):
            self._forget(slot, slot.blocks.pop(next(iter(slot.blocks))))
            slot.lost += 1

    def _forget(self, slot: Slot, block: _Block) -> None:
        if block.fast:
            _drop(self._fast, block.key, slot.bit)
        if block.slow:
            _drop(self._slow, block.key, slot.bit)
            self._slow_blocks -= 1

    def _set_size(self, slot: Slot, size: int) -> None:
        if slot.block_tokens:
            left = self._sizes.pop(slot.block_tokens) & ~slot.bit
            if left:
                self._sizes[slot.block_tokens] = left
        slot.block_tokens = size
        if size:
            self._sizes[size] = self._sizes.get(size, 0) | slot.bit


def step_tokens(block_tokens: int) -> int:
    """Return at how many tokens' distance blocks of a size are looked up."""
    return block_tokens * -(-MIN_STEP_TOKENS // block_tokens)


def _drop(shards: _Masks, key: int, bit: int) -> None:
    """Take a slot's bit off a mask, and the mask away with the last bit."""
    masks = shards[key % _SHARDS]
    left = masks.get(key, 0) & ~bit
    if left:
        masks[key] = left
    else:
        masks.pop(key, None)


def _walk(ladder: list[int], slots: int, fast: _Masks, slow: _Masks | None) -> dict[int, int]:
    """Return by slot number how many leading steps of the ladder it holds; 0 is no entry."""
    depths: dict[int, int] = {}
    alive, depth = slots, 0
    for depth, key in enumerate(ladder):
        mask = fast[key % _SHARDS].get(key, 0)
        if slow is not None:
            mask |= slow[key % _SHARDS].get(key, 0)
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
