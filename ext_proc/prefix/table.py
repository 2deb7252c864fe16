"""A map from 64-bit hashes to 32-bit numbers that takes about 21 bytes an entry and never pauses to grow.

Extendible hashing (Fagin et al., 1979) over slabs of open addressing with linear probing, all of them in two
flat numpy arrays, so that many keys are found or put at once, and one key by plain indexing. A slab that is
full is split in two: whatever the size of the table, an insertion moves one slab's entries at most.

The slabs that a table begins with cover ranges of the hash space whose widths differ by up to two, evenly
spread. So slabs fill up at different times, and the share of slots in use is about 0.425 / ln 2 = 0.61 at
every size, instead of swinging between 0.43 and 0.85.
"""

from __future__ import annotations

import secrets
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

RESERVED: Final = 2
"""Keys below mark slots: 0 is empty, 1 was deleted (a probe goes on behind it)."""
_GONE: Final = 1
_SHIFT: Final = 0x9E37_79B9_7F4A_7C15
"""Added to the hashes that the table reserves."""
_64_BITS: Final = 2**64 - 1
_FULL: Final = 0.85
_PURGE_BELOW: Final = 0.75
"""A slab that is full of deleted entries is cleaned instead of split when so much of its room is left."""
_LEAST_RANGE: Final = 16
"""Entries of the directory that a slab has before it is split: finer ones keep the widths apart."""
_BUCKET_BITS: Final = 3
_BUCKET: Final = 1 << _BUCKET_BITS
"""Probes begin at multiples of so many slots, a cache line of keys: many keys are compared by lines."""
_FEW: Final = 6
"""Keys still on their way below which one by one is faster than all at once."""


class BlockTable:
    """Keys are 64-bit hashes from `RESERVED` on; values are 1 to 2**32 - 1, and 0 says "not there"."""

    __slots__ = (
        "_bases",
        "_bits",
        "_count",
        "_directory",
        "_home",
        "_keys",
        "_keys_view",
        "_mask",
        "_most",
        "_multiplier",
        "_ranges",
        "_shift",
        "_slots",
        "_used",
        "_used_view",
        "_values",
        "_values_view",
    )

    def __init__(self, slab_bits: int = 10, first_slabs: int = 1) -> None:
        """Slabs have `2 ** slab_bits` slots; a table that grows large begins with 8 slabs or more."""
        self._bits, self._slots = slab_bits, 1 << slab_bits
        self._mask = self._slots - 1
        self._home = self._slots - _BUCKET
        self._most = int(self._slots * _FULL)
        # Clients choose what is hashed; without the multiplier they cannot choose what collides here.
        self._multiplier = secrets.randbits(64) | 1
        depth = (first_slabs * _LEAST_RANGE).bit_length()
        self._shift = 64 - depth
        self._ranges = _uneven(first_slabs, 1 << depth)
        """By slab: which entries of the directory are its own, as begin and end."""
        self._directory = np.zeros(1 << depth, np.int32)
        """By a hash's leading bits: where its slab begins."""
        for slab, (begin, end) in enumerate(self._ranges):
            self._directory[begin:end] = slab << slab_bits
        self._keys = np.zeros(first_slabs << slab_bits, np.uint64)
        self._values = np.zeros(first_slabs << slab_bits, np.uint32)
        self._used = np.zeros(first_slabs, np.int32)
        """By slab: slots that are not empty."""
        self._count = 0
        self._bases: memoryview
        self._keys_view: memoryview
        self._values_view: memoryview
        self._used_view: memoryview
        self._open()

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return int(
            self._keys.nbytes + self._values.nbytes + self._directory.nbytes + self._used.nbytes
        ) + 64 * len(self._ranges)

    def get(self, key: int) -> int:
        """Return the value, 0 when there is none."""
        mixed = key * self._multiplier & _64_BITS
        base, mask, keys = self._bases[mixed >> self._shift], self._mask, self._keys_view
        slot = base + (mixed & self._home)
        stored = keys[slot]
        while stored != key:
            if not stored:
                return 0
            slot = base + (slot + 1 & mask)
            stored = keys[slot]
        return self._values_view[slot]

    def put(self, key: int, value: int) -> None:
        """Set a key's value, whether it is there or not."""
        if self.claim(key, value):
            self._values_view[self._slot(key)] = value

    def claim(self, key: int, value: int) -> int:
        """Set the value of a new key and return 0; for an old key, only return its value."""
        mixed = key * self._multiplier & _64_BITS
        base, mask, keys = self._bases[mixed >> self._shift], self._mask, self._keys_view
        slot = base + (mixed & self._home)
        stored = keys[slot]
        while stored != key and stored > _GONE:
            slot = base + (slot + 1 & mask)
            stored = keys[slot]
        # A slot of a deleted entry is taken if the key stands nowhere behind it.
        free = slot if stored == _GONE else -1
        while stored and stored != key:
            slot = base + (slot + 1 & mask)
            stored = keys[slot]
        if stored:
            return self._values_view[slot]
        self._count += 1
        if free >= 0:
            keys[free], self._values_view[free] = key, value
            return 0
        keys[slot], self._values_view[slot] = key, value
        slab = base >> self._bits
        self._used_view[slab] += 1
        if self._used_view[slab] > self._most:
            self._make_room(slab, 0)
        return 0

    def claim_new(self, blocks: Iterable[int], value: int) -> tuple[int, int]:
        """Set the value of the keys of hashes in turn, up to the first that is there, which it keeps.

        Return how many were new, and the key that was there; 0: all were new.
        """
        new, home, mask, most, view = 0, self._home, self._mask, self._most, self._keys_view
        bases, multiplier, shift, values = self._bases, self._multiplier, self._shift, self._values_view
        for block in blocks:
            key = block if block >= RESERVED else key_of(block)
            mixed = key * multiplier & _64_BITS
            base = bases[mixed >> shift]
            slot = base + (mixed & home)
            while (stored := view[slot]) > _GONE and stored != key:
                slot = base + (slot + 1 & mask)
            if stored:
                # `claim` puts it into the slot of a deleted entry, so the table does not grow.
                if stored == key or self.claim(key, value):
                    return new, key
            else:
                view[slot], values[slot] = key, value
                self._count += 1
                slab = base >> self._bits
                self._used_view[slab] += 1
                if self._used_view[slab] > most:
                    self._make_room(slab, 0)
                    bases, shift, view, values = self._bases, self._shift, self._keys_view, self._values_view
            new += 1
        return new, 0

    def remove(self, key: int) -> None:
        """Drop a key; nothing happens when it is not there."""
        slot = self._slot(key)
        if slot >= 0:
            self._empty(slot)

    def release(self, key: int, value: int) -> int:
        """Drop a key that has this value; return the value that it had, 0 when it is not there."""
        slot = self._slot(key)
        if slot < 0:
            return 0
        stored = self._values_view[slot]
        if stored == value:
            self._empty(slot)
        return stored

    def _empty(self, slot: int) -> None:
        self._count -= 1
        self._values_view[slot] = 0
        mask, keys = self._mask, self._keys_view
        keys[slot] = _GONE
        # At the end of a run of used slots no probe needs the mark.
        base = slot & ~mask
        if not keys[base + (slot + 1 & mask)]:
            slab = base >> self._bits
            while keys[slot] == _GONE:
                keys[slot] = 0
                self._used_view[slab] -= 1
                slot = base + (slot - 1 & mask)

    def find(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the slot of each key, -1 where it is not there. Slots hold until the next insertion."""
        bases, slots = self._homes(keys)
        result = np.full(keys.size, -1)
        lines, waiting = self._keys.reshape(-1, _BUCKET), np.arange(keys.size)
        while waiting.size > _FEW:
            at = slots[waiting]
            stored = lines[at >> _BUCKET_BITS]
            hit, column = np.nonzero(stored == keys[waiting, None])
            result[waiting[hit]] = at[hit] + column
            on = stored[:, -1] != 0
            on[hit] = False
            waiting = waiting[on]
            slots[waiting] = bases[waiting] + (slots[waiting] + _BUCKET & self._mask)
        for index in waiting.tolist():
            result[index] = self._slot(int(keys[index]))
        return result

    def values_at(self, slots: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the values in slots that `find` or `live` gave."""
        return self._values[slots]

    def set_at(self, slots: NDArray[np.int64], values: NDArray[np.uint32]) -> None:
        """Change the values in slots that `find` or `live` gave."""
        self._values[slots] = values

    def remove_at(self, slots: NDArray[np.int64]) -> None:
        """Drop the entries in slots that `find` or `live` gave, each one named once."""
        self._keys[slots] = _GONE
        self._values[slots] = 0
        self._count -= slots.size

    def live(self) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the slots and the keys of all entries."""
        slots = np.flatnonzero(self._keys >= RESERVED)
        return slots, self._keys[slots]

    def put_new(self, keys: NDArray[np.uint64], value: int) -> None:
        """Set one value for many keys, all different and none of them there."""
        for begin in range(0, keys.size, self._slots >> 1):
            self._put_new(keys[begin : begin + (self._slots >> 1)], value)

    def _put_new(self, keys: NDArray[np.uint64], value: int) -> None:
        bases, slots = self._room_for(keys)
        lines, waiting = self._keys.reshape(-1, _BUCKET), keys
        while waiting.size > _FEW:
            stored = lines[slots >> _BUCKET_BITS]
            free = stored < RESERVED
            column = free.argmax(axis=1)
            fits = np.flatnonzero(free[np.arange(column.size), column])
            at, was_empty = (slots + column)[fits], stored[fits, column[fits]] == 0
            self._keys[at] = waiting[fits]
            # Of several keys that want one slot the last one written has it.
            won = self._keys[at] == waiting[fits]
            self._values[at[won]] = value
            np.add.at(self._used, at[won & was_empty] >> self._bits, 1)
            left = np.ones(waiting.size, np.bool_)
            left[fits[won]] = False
            step = np.full(waiting.size, _BUCKET)
            step[fits] = 0
            waiting, bases = waiting[left], bases[left]
            slots = bases + (slots[left] + step[left] & self._mask)
        self._count += keys.size - waiting.size
        for key in waiting.tolist():
            self.put(key, value)

    def _room_for(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Split slabs until each has room for those of `keys` that are its own; return as `_homes` does."""
        while True:
            bases, slots = self._homes(keys)
            slabs, coming = np.unique(bases >> self._bits, return_counts=True)
            full = self._used[slabs] + coming > self._most
            if not full.any():
                return bases, slots
            for slab, count in zip(slabs[full].tolist(), coming[full].tolist(), strict=True):
                self._make_room(slab, count)

    def _homes(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each key's slab begins and the slot where its probe does."""
        mixed = keys * np.uint64(self._multiplier)
        bases = self._directory[(mixed >> np.uint64(self._shift)).astype(np.int64)].astype(np.int64)
        return bases, bases + (mixed & np.uint64(self._home)).astype(np.int64)

    def _slot(self, key: int) -> int:
        mixed = key * self._multiplier & _64_BITS
        base, mask, keys = self._bases[mixed >> self._shift], self._mask, self._keys_view
        slot = base + (mixed & self._home)
        while (stored := keys[slot]) != key:
            if not stored:
                return -1
            slot = base + (slot + 1 & mask)
        return slot

    def _make_room(self, slab: int, coming: int) -> None:
        """Clean a slab of deleted entries, or split it when it is full of others."""
        base = slab << self._bits
        keys, values = self._keys[base : base + self._slots], self._values[base : base + self._slots]
        kept = np.flatnonzero(keys >= RESERVED)
        live_keys, live_values = keys[kept], values[kept]
        keys[:] = 0
        values[:] = 0
        if kept.size + coming <= self._most * _PURGE_BELOW:
            self._fill(slab, live_keys, live_values)
            return
        begin, end = self._ranges[slab]
        if end - begin < _LEAST_RANGE:
            self._double_directory()
            begin, end = self._ranges[slab]
        middle = begin + end >> 1
        other = self._add_slab()
        self._ranges[slab], self._ranges[other] = (begin, middle), (middle, end)
        self._directory[middle:end] = other << self._bits
        right = (live_keys * np.uint64(self._multiplier)) >> np.uint64(self._shift) >= middle
        self._fill(slab, live_keys[~right], live_values[~right])
        self._fill(other, live_keys[right], live_values[right])

    def _fill(self, slab: int, keys: NDArray[np.uint64], values: NDArray[np.uint32]) -> None:
        """Put entries into an empty slab: in the order of their homes each goes behind the one before."""
        base, count = slab << self._bits, keys.size
        self._used[slab] = count
        if not count:
            return
        homes = (keys * np.uint64(self._multiplier) & np.uint64(self._home)).astype(np.int64)
        order = homes.argsort(kind="stable")
        index = np.arange(count)
        slots = index + np.maximum.accumulate(homes[order] - index)
        fits = slots < self._slots
        self._keys[base + slots[fits]] = keys[order[fits]]
        self._values[base + slots[fits]] = values[order[fits]]
        free = 0
        for entry in order[~fits].tolist():
            while self._keys[base + free]:
                free += 1
            self._keys[base + free], self._values[base + free] = keys[entry], values[entry]

    def _add_slab(self) -> int:
        slab = len(self._ranges)
        self._ranges.append((0, 0))
        if slab == self._used.size:
            room = slab + 1 + (slab >> 5)
            self._close()
            # In place: for what is large the C library moves pages, and copies nothing.
            self._keys.resize(room << self._bits, refcheck=False)
            self._values.resize(room << self._bits, refcheck=False)
            self._used.resize(room, refcheck=False)
            self._open()
        return slab

    def _double_directory(self) -> None:
        self._bases.release()
        self._directory = np.repeat(self._directory, 2)
        self._bases = self._directory.data
        self._ranges = [(2 * begin, 2 * end) for begin, end in self._ranges]
        self._shift -= 1

    def _open(self) -> None:
        """Make the views through which single entries are read and written."""
        self._bases = self._directory.data
        self._keys_view, self._values_view = self._keys.data, self._values.data
        self._used_view = self._used.data

    def _close(self) -> None:
        for view in (self._bases, self._keys_view, self._values_view, self._used_view):
            view.release()


def _uneven(count: int, entries: int) -> list[tuple[int, int]]:
    """Cut `entries` into `count` ranges whose widths grow evenly, in ratio, from one to nearly two."""
    borders = np.cumsum(2.0 ** (np.arange(count) / count))
    ends = [0, *np.round(borders * (entries / borders[-1])).astype(int).tolist()]
    return list(pairwise(ends))


def key_of(block: int) -> int:
    """Return the key of a hash: the hash itself, but for the two that mark slots."""
    return block if block >= RESERVED else block + _SHIFT


def keys_of(blocks: Sequence[int]) -> NDArray[np.uint64]:
    """Return the keys of many hashes."""
    keys = np.fromiter(blocks, np.uint64, len(blocks))
    if keys.size and keys.item(keys.argmin()) < RESERVED:
        keys[keys < RESERVED] += np.uint64(_SHIFT)
    return keys
