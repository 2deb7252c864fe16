"""Which publisher holds which prefixes: engines' blocks by their own hashes, prefixes by token keys.

A publisher is one data-parallel rank of one endpoint and has a slot. A block's prefix key follows from its
parent's, which is found by the engine's own hash, so no engine's hash function is ever computed anew. The
same hash may be stored several times (engines fill a copy each for two requests at a time) and then has to
be removed as often.

Whoever forgets all it held gets another bit in the masks, which is no work; what the old bit stands for is
swept away a little at a time.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ext_proc.kv.adapters import AdapterNames
from ext_proc.kv.chain import LOW_64, MAX_TOKENS, Chain
from ext_proc.kv.events import MAX_BLOCKS, Stored, Tier
from ext_proc.kv.masks import SHARDS, Masks, drop, empty, walk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ext_proc.kv.events import Removed

MIN_STEP_TOKENS: Final = 16
"""Engines with smaller blocks (SGLang's hold one token) are looked up at every so many tokens."""
SWEPT: Final = 2 * MAX_BLOCKS
"""Blocks that one `sweep` removes: more than any event adds."""
_SLACK_SHIFT: Final = 7


class _Block(msgspec.Struct, gc=False):
    """Unknown to the garbage collector, which would stop the loop to look at millions of them."""

    key: int
    depth: int
    fast: int = 0
    slow: int = 0


class Slot:
    """What one publisher holds."""

    __slots__ = ("bit", "block_tokens", "blocks", "lost", "number", "orphans", "owner", "unknown_removals")

    def __init__(self, number: int, owner: str) -> None:
        self.number = number
        """Changes when all is forgotten."""
        self.bit = 1 << number
        self.owner = owner
        """The endpoint's address."""
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
        self.adapters = AdapterNames()
        self._fast: Masks = empty()
        self._slow: Masks = empty()
        self._slow_blocks = 0
        self._sizes: dict[int, int] = {}
        """Tokens of a block to the bits of the slots that have such blocks."""
        self._free: list[int] = []
        self._numbers = 0
        self._slots: dict[int, Slot] = {}
        """By number."""
        self._forgotten: deque[tuple[int, dict[int, _Block]]] = deque()
        """Numbers that nobody has any more, with the blocks whose masks still name them."""

    def open(self, owner: str) -> Slot:
        """Give out a slot of an endpoint."""
        slot = Slot(self._number(), owner)
        self._slots[slot.number] = slot
        return slot

    def close(self, slot: Slot) -> None:
        """Forget a publisher."""
        self.clear(slot)
        del self._slots[slot.number]
        self._free.append(slot.number)

    def clear(self, slot: Slot) -> None:
        """Forget what a publisher holds, at once; `sweep` frees the memory."""
        self._set_size(slot, 0)
        slot.lost = 0
        if slot.blocks:
            self._forgotten.append((slot.number, slot.blocks))
            slot.blocks = {}
            del self._slots[slot.number]
            slot.number = self._number()
            slot.bit = 1 << slot.number
            self._slots[slot.number] = slot

    def sweep(self) -> bool:
        """Remove some blocks of what was forgotten; False: there are none."""
        if not self._forgotten:
            return False
        number, blocks = self._forgotten[0]
        bit = 1 << number
        for _ in range(min(SWEPT, len(blocks))):
            self._forget(bit, blocks.popitem()[1])
        if not blocks:
            self._forgotten.popleft()
            self._free.append(number)
        return True

    def store(self, slot: Slot, event: Stored) -> list[int]:
        """Take in filled blocks; return the keys of those prefixes that are new in fast memory."""
        if event.adapter:
            self.adapters.note(slot.owner, event.adapter)
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
                    drop(self._fast, block.key, slot.bit)
            elif event.tier is Tier.SLOW and block.slow:
                block.slow -= 1
                if not block.slow:
                    drop(self._slow, block.key, slot.bit)
                    self._slow_blocks -= 1
            if not block.fast and not block.slow:
                del slot.blocks[number]

    def holders(self, key: int) -> int:
        """Return a mask with the bits of those who hold a prefix in fast memory, and of nobody any more."""
        return self._fast[key % SHARDS].get(key, 0)

    def matched(self, keys: NDArray[np.uint64], most_blocks: int) -> Mapping[Slot, tuple[int, int]]:
        """Return, by slot, how many leading tokens lie in fast memory, and in any.

        `keys` are those of the prompt's prefixes of 1, 2, ... tokens. An engine computes the last token of a
        prompt in any case, so that one never counts. Slots that hold nothing are left out; at most
        `most_blocks` blocks are looked at.
        """
        found: dict[Slot, tuple[int, int]] = {}
        usable = len(keys) - 1
        for size, slots in self._sizes.items():
            step = step_tokens(size)
            count = min(usable // step, most_blocks)
            if not slots or count < 1:
                continue
            ladder = keys[step - 1 : count * step : step].tolist()
            fast = walk(ladder, slots, self._fast, None)
            anywhere = walk(ladder, slots, self._fast, self._slow) if self._slow_blocks else fast
            for number, depth in anywhere.items():
                found[self._slots[number]] = fast.get(number, 0) * step, depth * step
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
                masks = self._fast[key % SHARDS]
                masks[key] = masks.get(key, 0) | slot.bit
            block.fast += 1
        else:
            if not block.slow:
                masks = self._slow[key % SHARDS]
                masks[key] = masks.get(key, 0) | slot.bit
                self._slow_blocks += 1
            block.slow += 1

    def _bound(self, slot: Slot) -> None:
        beyond = len(slot.blocks) - self.limit
        if beyond <= 0:
            return
        # Some more than must go: to find the oldest ones, a dictionary walks over all that went before.
        beyond = min(beyond + min(self.limit >> _SLACK_SHIFT, MAX_BLOCKS), SWEPT)
        for number in list(islice(slot.blocks, beyond)):
            self._forget(slot.bit, slot.blocks.pop(number))
        slot.lost += beyond

    def _forget(self, bit: int, block: _Block) -> None:
        if block.fast:
            drop(self._fast, block.key, bit)
        if block.slow:
            drop(self._slow, block.key, bit)
            self._slow_blocks -= 1

    def _number(self) -> int:
        if self._free:
            return self._free.pop()
        self._numbers += 1
        return self._numbers - 1

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
