"""Publishers' cached prefixes: engines' blocks by the engines' own hashes, prefixes by token keys.

A publisher is one data-parallel rank of one endpoint and has a slot. The key of a block's prefix follows from
its parent's key, and the parent is looked up by the engine's own hash, so no engine's hash function is
recomputed. An engine may store the same hash several times (two simultaneous requests fill a copy each), and
must then remove it as often.

A publisher whose blocks are void gets another bit in the masks, which takes no time; `sweep` clears the old
bit in small steps.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from ext_proc.kv.adapters import AdapterNames
from ext_proc.kv.chain import LOW_64, MAX_TOKENS, Chain
from ext_proc.kv.events import MAX_BLOCKS, Stored, Tier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ext_proc.kv.events import Removed

MIN_STEP_TOKENS: Final = 16
"""Engines with smaller blocks (SGLang's have one token) are looked up at every 16th token."""
SWEPT: Final = 2 * MAX_BLOCKS
"""Blocks that one `sweep` removes: more than any event adds."""
SHARDS: Final = 256
"""Dictionaries for all prefixes: a single one would stop the loop whenever it grows."""
_SLACK_SHIFT: Final = 7

Masks: TypeAlias = list[dict[int, int]]
"""Prefix keys to the bits of the slots that have them, in `SHARDS`."""


class _Block(msgspec.Struct, gc=False):
    """Without the garbage collector, which would stop the loop to look at millions of them."""

    key: int
    depth: int
    fast: int = 0
    """Copies in fast memory."""
    slow: int = 0


class Slot:
    """The blocks of one publisher."""

    __slots__ = (
        "bit", "block_tokens", "blocks", "lost", "number", "orphans", "owner", "rank", "unknown_removals",
    )  # fmt: skip

    def __init__(self, number: int, owner: str, rank: int) -> None:
        self.number = number
        """Changes when the blocks become void."""
        self.bit = 1 << number
        self.owner = owner
        """The endpoint's address."""
        self.rank = rank
        self.blocks: dict[int, _Block] = {}
        self.block_tokens = 0
        self.orphans = 0
        """Blocks that were published without a known predecessor."""
        self.unknown_removals = 0
        self.lost = 0
        """Blocks that were dropped because of the limit."""


class BlockIndex:
    """All publishers' blocks. Single-threaded; memory is bounded by `limit` blocks a slot."""

    def __init__(self, limit: int) -> None:
        self.chain = Chain()
        self.limit = limit
        self.adapters = AdapterNames()
        self._fast: Masks = [{} for _ in range(SHARDS)]
        self._slow: Masks = [{} for _ in range(SHARDS)]
        self._slow_blocks = 0
        self._sizes: dict[int, int] = {}
        """Tokens of a block to the bits of the slots with such blocks."""
        self._free: list[int] = []
        self._numbers = 0
        self._slots: dict[int, Slot] = {}
        """By number."""
        self._void: deque[tuple[int, dict[int, _Block]]] = deque()
        """Numbers without a slot, with the blocks whose masks still have their bits."""

    def open(self, owner: str, rank: int = 0) -> Slot:
        """Return a new slot of an endpoint's rank."""
        slot = Slot(self._number(), owner, rank)
        self._slots[slot.number] = slot
        return slot

    def close(self, slot: Slot) -> None:
        """Forget a publisher."""
        self.clear(slot)
        del self._slots[slot.number]
        self._free.append(slot.number)

    def clear(self, slot: Slot) -> None:
        """Void a publisher's blocks, at once; `sweep` frees the memory."""
        self._set_size(slot, 0)
        slot.lost = 0
        if slot.blocks:
            self._void.append((slot.number, slot.blocks))
            slot.blocks = {}
            del self._slots[slot.number]
            slot.number = self._number()
            slot.bit = 1 << slot.number
            self._slots[slot.number] = slot

    def sweep(self) -> bool:
        """Free some of the void blocks; False: there are none."""
        if not self._void:
            return False
        number, blocks = self._void[0]
        bit = 1 << number
        for _ in range(min(SWEPT, len(blocks))):
            self._drop(bit, blocks.popitem()[1])
        if not blocks:
            self._void.popleft()
            self._free.append(number)
        return True

    def store(self, slot: Slot, event: Stored) -> list[int]:
        """Add filled blocks; return the keys of the prefixes that are new in fast memory."""
        if event.adapter:
            self.adapters.add(slot.owner, event.adapter)
        start = self._start(slot, event)
        if start is None:
            # Without a known predecessor, only blocks that are in the index already can be counted.
            for number in event.hashes:
                if (block := slot.blocks.get(number)) is None:
                    slot.orphans += 1
                else:
                    self._count(slot, block, event.tier)
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
        """Remove one copy of each evicted block."""
        for number in event.hashes:
            block = slot.blocks.get(number)
            if block is None:
                slot.unknown_removals += 1
                continue
            if event.tier is Tier.FAST and block.fast:
                block.fast -= 1
                if not block.fast:
                    _unmark(self._fast, block.key, slot.bit)
            elif event.tier is Tier.SLOW and block.slow:
                block.slow -= 1
                if not block.slow:
                    _unmark(self._slow, block.key, slot.bit)
                    self._slow_blocks -= 1
            if not block.fast and not block.slow:
                del slot.blocks[number]

    def holders(self, key: int) -> int:
        """Return a mask with the bits of the slots that have a prefix in fast memory, and of void blocks."""
        return self._fast[key % SHARDS].get(key, 0)

    def matched(self, keys: NDArray[np.uint64], most_blocks: int) -> Mapping[Slot, tuple[int, int]]:
        """Return, by slot, the numbers of leading tokens in fast memory, and in any.

        `keys` are those of the prompt's prefixes of 1, 2, ... tokens. The last token never counts, because an
        engine computes it in any case. Slots without a match are left out; at most `most_blocks` blocks are
        looked up.
        """
        matched: dict[Slot, tuple[int, int]] = {}
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
                matched[self._slots[number]] = fast.get(number, 0) * step, depth * step
        return matched

    def _start(self, slot: Slot, event: Stored) -> tuple[int, int] | None:
        """Return key and length of the prefix before the event's first block; None: unknown."""
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
        keys: list[int] = (np.cumsum(sums, dtype=np.uint64) + np.uint64(key & LOW_64)).tolist()
        return keys

    def _count(self, slot: Slot, block: _Block, tier: Tier) -> None:
        """Add one copy of a block."""
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
        # More than necessary: to find the oldest ones, a dictionary walks over all deleted ones before them.
        beyond = min(beyond + min(self.limit >> _SLACK_SHIFT, MAX_BLOCKS), SWEPT)
        for number in list(islice(slot.blocks, beyond)):
            self._drop(slot.bit, slot.blocks.pop(number))
        slot.lost += beyond

    def _drop(self, bit: int, block: _Block) -> None:
        if block.fast:
            _unmark(self._fast, block.key, bit)
        if block.slow:
            _unmark(self._slow, block.key, bit)
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
    """Return the distance in tokens at which blocks of a size are looked up."""
    return block_tokens * -(-MIN_STEP_TOKENS // block_tokens)


def _unmark(shards: Masks, key: int, bit: int) -> None:
    """Clear a slot's bit in a mask, and delete the mask with its last bit."""
    masks = shards[key % SHARDS]
    left = masks.get(key, 0) & ~bit
    if left:
        masks[key] = left
    else:
        masks.pop(key, None)


def _walk(ladder: list[int], slots: int, fast: Masks, slow: Masks | None) -> dict[int, int]:
    """Return by slot number how many leading steps of the ladder it has; slots with 0 have no entry."""
    depths: dict[int, int] = {}

    def end(mask: int, depth: int) -> None:
        while mask:
            low = mask & -mask
            depths[low.bit_length() - 1] = depth
            mask ^= low

    alive = slots
    for depth, key in enumerate(ladder):
        mask = fast[key % SHARDS].get(key, 0)
        if slow is not None:
            mask |= slow[key % SHARDS].get(key, 0)
        if gone := alive & ~mask:
            if depth:
                end(gone, depth)
            alive &= mask
            if not alive:
                return depths
    end(alive, len(ladder))
    return depths
