"""Level 2: the endpoints that hold the leading blocks of a prompt, by this worker's own picks.

One table names for each block the set of endpoints that hold it, so a look-up reads a few of the prompt's
blocks, whatever the number of endpoints. `Recency` keeps each endpoint's order of use.
`python -m bench.index` measures both.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import compress
from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.prefix.recency import Recency
from ext_proc.prefix.table import RESERVED, BlockTable, key_of, keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_MANY: Final = 24
"""Holders from which on naming them all at once is cheaper than bit by bit."""
_DIGITS_TO_TRUTH: Final = bytes.maketrans(b"01", b"\x00\x01")
_AT_ONCE: Final = 256
"""Blocks from which on changing them in arrays is faster than one by one, between other work of requests."""
_FEW: Final = 16
"""Holders of a level that are set fastest one after the other."""
_MOST_MASKS: Final = 128
"""Sets of more holders that are kept as arrays."""
_EXACT: Final = 64
"""Blocks of one prompt that are looked up before the answer gets coarser: some ten changes of holders."""
_SLACK_SHIFT: Final = 7
_MOST_SLACK: Final = 512
_SWEPT: Final = 512
"""Blocks of forgotten endpoints that are removed with each record: a big cache does not stop the service."""


class HolderSets:
    """Sets of endpoints, each kept once. Number 0 is the empty set; the others live while blocks name them.

    A set is an integer whose bits are endpoints, and equal sets have equal numbers. A system prompt that a
    thousand endpoints hold costs one integer of a thousand bits for all of its blocks.
    """

    def __init__(self) -> None:
        self.masks: list[int] = [0]
        """By number."""
        self._numbers: dict[int, int] = {0: 0}
        self._uses: list[int] = [0]
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, mask: int) -> int:
        """Return the number of a set, new on first use; call `move` for its blocks before the next call."""
        number = self._numbers.get(mask)
        if number is not None:
            return number
        if self._free:
            number = self._free.pop()
            self.masks[number] = mask
        else:
            number = len(self.masks)
            self.masks.append(mask)
            self._uses.append(0)
        self._numbers[mask] = number
        return number

    def pin(self, mask: int) -> int:
        """Return the number of a set and keep the set, even without blocks, until `unpin`."""
        number = self.number(mask)
        self._uses[number] += 1
        return number

    def unpin(self, number: int) -> None:
        """Undo a `pin`; a set without blocks goes."""
        self.move(number, 0, 1)

    def move(self, old: int, new: int, count: int) -> None:
        """Note that `count` blocks have the set `new` instead of `old`; 0 stands for no block."""
        self._uses[new] += count
        if old:
            self._uses[old] -= count
            if not self._uses[old]:
                del self._numbers[self.masks[old]]
                self.masks[old] = 0
                self._free.append(old)


class _Endpoint:
    """One endpoint's blocks, and its bit in the holders' masks."""

    __slots__ = ("alone", "bit", "limit", "recency", "slot", "units")

    def __init__(self, slot: int, alone: int, limit: int) -> None:
        self.slot = slot
        self.bit = 1 << slot
        self.alone = alone
        """The number of the set of this endpoint alone."""
        self.limit = limit
        """In units."""
        self.units = 0.0
        """Of the blocks: exact as to what has come, and by their mean as to what was evicted."""
        self.recency = Recency()


class PrefixIndex:
    """A bounded guess of each endpoint's KV cache, kept by chained block hashes.

    Blocks may be of different lengths, by their place in a prompt; limits are in units of such lengths. Each
    endpoint drops its least recently used blocks when it is over its limit, down to 1 in 128 below it. A
    prompt's blocks count as used from its tail to its head, and a prompt uses all blocks before its last one,
    so a tail goes before its head: an endpoint that holds a block holds all blocks before it. Hence the
    holders of a prompt's blocks only become fewer with depth, equal holders at two depths hold all between,
    and bisection finds every change.
    """

    def __init__(self, units_per_endpoint: int, ends: Sequence[int] = range(sys.maxsize)) -> None:
        """`ends` are the units of a prompt's leading blocks, by their number."""
        if units_per_endpoint < 1:
            raise ValueError(f"units_per_endpoint {units_per_endpoint}: allowed: 1 and above")
        self._units_per_endpoint = units_per_endpoint
        self._ends = ends
        self._table = BlockTable(first_slabs=8)
        """Block to the number of the set of its holders."""
        self._sets = HolderSets()
        self._endpoints: dict[str, _Endpoint] = {}
        self._addresses: list[str] = []
        """By slot; a free slot keeps its last name until it is taken again."""
        self._free: list[int] = []
        self._forgotten: deque[_Endpoint] = deque()
        """Those whose blocks are not all removed yet."""
        self._alive = -1
        """All bits but those of the forgotten."""
        self.generation = 0
        """Changes when an endpoint gets or loses its slot."""

    def __len__(self) -> int:
        """Blocks with at least one holder, each counted once."""
        return len(self._table)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays: nearly all that the index takes."""
        return self._table.nbytes + sum(entry.recency.nbytes for entry in self._endpoints.values())

    def matched(self, blocks: Sequence[int]) -> dict[str, int]:
        """Return the number of leading blocks of `blocks` at each endpoint that holds any."""
        depths: dict[str, int] = {}
        for depth, mask in self.levels(blocks):
            self._set_depth(depths, mask, depth)
        return depths

    def levels(self, blocks: Sequence[int]) -> list[tuple[int, int]]:
        """Return numbers of leading blocks, each with a mask of the endpoints that hold exactly as many.

        Where holders change so often that this would take more than `_EXACT` look-ups, the other numbers are
        up to a 32nd of the prompt too low.
        """
        levels: list[tuple[int, int]] = []
        get = self._table.get
        if not blocks or not (number := get(key_of(blocks[0]))):
            return levels
        masks, low, alive, lookups = self._sets.masks, 0, self._sets.masks[number], 0
        high, other, coarse = len(blocks) - 1, get(key_of(blocks[-1])), len(blocks) >> 5
        ahead: list[tuple[int, int]] = []
        while True:
            if other == number:
                low = high
            elif high - low > 1 and (lookups < _EXACT or high - low > coarse):
                ahead.append((high, other))
                high = low + high >> 1
                other = get(block if (block := blocks[high]) >= RESERVED else key_of(block))
                lookups += 1
                continue
            else:
                still = alive & masks[other]
                if gone := (alive ^ still) & self._alive:
                    levels.append((low + 1, gone))
                if not still:
                    return levels
                low, number, alive = high, other, still
            if not ahead:
                break
            high, other = ahead.pop()
        if alive := alive & self._alive:
            levels.append((len(blocks), alive))
        return levels

    def record(self, address: str, blocks: Sequence[int]) -> int:
        """Note that `address` is now warm for `blocks`, as many leading ones as it can hold.

        Return the number of those that are new there.
        """
        if self._forgotten:
            self._sweep()
        endpoint = self._endpoint(address)
        fitting = self._fitting(len(blocks), endpoint.limit)
        kept = blocks if len(blocks) == fitting else blocks[:fitting]
        if not kept:
            return 0
        new = self._add(kept, endpoint)
        if new:
            endpoint.units += self._ends[fitting] - self._ends[fitting - new]
        endpoint.recency.touch(kept, new)
        self._evict(endpoint)
        return new

    def take_back(self, address: str, blocks: Sequence[int], kept: int) -> None:
        """Note that `address` holds no more than the `kept` leading ones of `blocks`.

        No longer prompt that begins with `blocks` may have been recorded there.
        """
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            return
        chain = blocks[: self._fitting(len(blocks), endpoint.limit)]
        if kept < len(chain):
            gone = endpoint.recency.cut(chain, kept)
            self._lose(gone, self._ends[kept + gone.size] - self._ends[kept], endpoint)

    def resize(self, address: str, limit_units: int) -> None:
        """Set how many units `address` can hold, at most the index's own limit, and evict down to it."""
        endpoint = self._endpoint(address)
        endpoint.limit = max(0, min(limit_units, self._units_per_endpoint))
        self._evict(endpoint)

    def forget(self, address: str) -> None:
        """Remove `address` with its size: its engine restarted or is gone."""
        endpoint = self._endpoints.pop(address, None)
        if endpoint is not None:
            self.generation += 1
            self._alive ^= endpoint.bit
            self._forgotten.append(endpoint)
            self._sweep()

    def block_count(self, address: str) -> int:
        """Return how many blocks `address` holds by the index."""
        endpoint = self._endpoints.get(address)
        return 0 if endpoint is None else endpoint.recency.size

    def fitting(self, address: str, blocks: int) -> int:
        """Return how many leading ones of a prompt's blocks `address` can hold."""
        endpoint = self._endpoints.get(address)
        return self._fitting(blocks, self._units_per_endpoint if endpoint is None else endpoint.limit)

    def _fitting(self, blocks: int, limit: int) -> int:
        ends = self._ends
        return blocks if blocks < len(ends) and ends[blocks] <= limit else bisect_right(ends, limit) - 1

    def knows(self, address: str) -> bool:
        """Whether `address` was resized or recorded and not forgotten since."""
        return address in self._endpoints

    @property
    def slots(self) -> int:
        """Return how many slots there are: one more than the highest bit of any mask."""
        return len(self._addresses)

    def slot(self, address: str) -> int:
        """Return the bit of `address` in masks of `levels`, until it is forgotten; -1: unknown endpoint."""
        endpoint = self._endpoints.get(address)
        return -1 if endpoint is None else endpoint.slot

    def _endpoint(self, address: str) -> _Endpoint:
        endpoint = self._endpoints.get(address)
        if endpoint is None:
            if self._free:
                slot = self._free.pop()
                self._addresses[slot] = address
            else:
                slot = len(self._addresses)
                self._addresses.append(address)
            self.generation += 1
            endpoint = self._endpoints[address] = _Endpoint(
                slot, self._sets.pin(1 << slot), self._units_per_endpoint
            )
        return endpoint

    def _evict(self, endpoint: _Endpoint) -> None:
        # A block has a unit at least, whatever a broken peer names.
        units, size = endpoint.units, endpoint.recency.size
        if units < size:
            units = endpoint.units = float(size)
        beyond = units - endpoint.limit
        if beyond > 0:
            # Some more than must go, so that a full endpoint does not evict with every record.
            beyond += min(endpoint.limit >> _SLACK_SHIFT, _MOST_SLACK)
            gone = endpoint.recency.drop_oldest(ceil(beyond * size / units))
            self._lose(gone, gone.size * units / size, endpoint)

    def _lose(self, hashes: NDArray[np.uint64], units: float, endpoint: _Endpoint) -> None:
        endpoint.units = endpoint.units - units if endpoint.recency.size else 0.0
        self._remove(hashes, endpoint)

    def _sweep(self) -> None:
        """Remove some blocks of those that are forgotten; an endpoint's bit is free when all are gone."""
        endpoint = self._forgotten[0]
        self._remove(endpoint.recency.drop_oldest(_SWEPT), endpoint)
        if not endpoint.recency.size:
            self._forgotten.popleft()
            self._alive |= endpoint.bit
            self._free.append(endpoint.slot)
            self._sets.unpin(endpoint.alone)

    def _add(self, chain: Sequence[int], endpoint: _Endpoint) -> int:
        """Add an endpoint to the holders of a prompt's blocks; return how many it did not hold."""
        table, sets, alone, bit = self._table, self._sets, endpoint.alone, endpoint.bit
        before, masks, new = len(table), sets.masks, 0
        if len(chain) >= _AT_ONCE and not masks[table.get(key_of(chain[-_AT_ONCE]))] & bit:
            begin = bisect_left(chain, True, key=lambda block: not masks[table.get(key_of(block))] & bit)
            hashes = keys_of(chain[begin:])
            slots = table.find(hashes)
            there = slots >= 0
            self._change(np.unique(slots[there]), bit, 0)
            # No prompt names a block twice, but a peer may; that must not upset the count.
            table.put_new(np.unique(hashes[~there]), alone)
            new = hashes.size
        else:
            # An endpoint that holds a block holds all before it.
            blocks = reversed(chain)
            while True:
                count, key = table.claim_new(blocks, alone)
                new += count
                if not key or (mask := masks[old := table.get(key)]) & bit:
                    break
                number = sets.number(mask | bit)
                table.put(key, number)
                sets.move(old, number, 1)
                new += 1
        sets.move(0, alone, len(table) - before)
        return new

    def _remove(self, hashes: NDArray[np.uint64], endpoint: _Endpoint) -> None:
        """Take an endpoint from the holders of blocks; a block without holders goes."""
        table, sets, alone, bit = self._table, self._sets, endpoint.alone, endpoint.bit
        if hashes.size >= _AT_ONCE:
            slots = table.find(hashes)
            self._change(np.unique(slots[slots >= 0]), 0, bit)
            return
        before = len(table)
        for block in hashes.tolist():
            old = table.release(block, alone)
            if old not in {0, alone}:
                number = sets.number(sets.masks[old] & ~bit)
                if number != old:
                    table.put(block, number)
                    sets.move(old, number, 1)
        sets.move(alone, 0, before - len(table))

    def _change(self, slots: NDArray[np.int64], added: int, taken: int) -> None:
        """Change the sets of many blocks at once, by their slots in the table."""
        table, sets = self._table, self._sets
        olds, place, counts = np.unique(table.values_at(slots), return_inverse=True, return_counts=True)
        numbers = np.zeros(olds.size, np.uint32)
        for index, (old, count) in enumerate(zip(olds.tolist(), counts.tolist(), strict=True)):
            numbers[index] = number = sets.number(sets.masks[old] & ~taken | added)
            if number != old:
                sets.move(old, number, count)
        changed = numbers[place]
        table.set_at(slots, changed)
        table.remove_at(slots[changed == 0])

    def _set_depth(self, depths: dict[str, int], mask: int, depth: int) -> None:
        addresses = self._addresses
        if mask.bit_count() >= _MANY:
            lowest_first = format(mask, "b")[::-1].encode().translate(_DIGITS_TO_TRUTH)
            depths.update(dict.fromkeys(compress(addresses, lowest_first), depth))
            return
        while mask:
            low = mask & -mask
            depths[addresses[low.bit_length() - 1]] = depth
            mask ^= low


class DepthColumn:
    """The matches of a fixed list of endpoints as an array, without a thousand entries of a dict."""

    def __init__(self, index: PrefixIndex, addresses: Sequence[str]) -> None:
        self._index = index
        self._addresses = tuple(addresses)
        self._slots: NDArray[np.intp] = np.zeros(0, np.intp)
        self._in_order = False
        """Whether the endpoints' slots are the first ones, in the same order."""
        self._generation = -1
        self._holders: dict[int, NDArray[np.bool_]] = {}
        """By mask, for the slots at this generation."""

    def matched(self, blocks: Sequence[int]) -> NDArray[np.int64]:
        """Return the number of leading blocks of `blocks` at each endpoint, in their order."""
        index = self._index
        if self._generation != index.generation:
            self._slots = np.array([index.slot(address) for address in self._addresses], np.intp)
            self._in_order = bool((self._slots == np.arange(self._slots.size)).all())
            self._generation = index.generation
            self._holders.clear()
        # Endpoints without a slot read the last entry, which stays 0.
        depths = np.zeros(index.slots + 1, np.int64)
        for depth, mask in index.levels(blocks):
            if mask.bit_count() <= _FEW:
                while mask:
                    slot = mask.bit_length() - 1
                    depths[slot] = depth
                    mask ^= 1 << slot
            else:
                holders = self._holders.get(mask)
                depths[self._holders_of(mask, depths.size) if holders is None else holders] = depth
        return depths[: self._slots.size] if self._in_order else depths[self._slots]

    def _holders_of(self, mask: int, size: int) -> NDArray[np.bool_]:
        if len(self._holders) >= _MOST_MASKS:
            self._holders.clear()
        octets = np.frombuffer(mask.to_bytes((size + 7) // 8, "little"), np.uint8)
        holders = np.unpackbits(octets, count=size, bitorder="little").view(np.bool_)
        self._holders[mask] = holders
        return holders
