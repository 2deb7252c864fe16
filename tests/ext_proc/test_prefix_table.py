"""The table: a map like a dict, one by one and many at once, however it grows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ext_proc.prefix.table import BlockTable, key_of


def array(keys: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array(keys, np.uint64)


@pytest.mark.parametrize("slab_bits", [4, 7])
@pytest.mark.parametrize("first_slabs", [1, 8])
@pytest.mark.parametrize("hashes", ["random", "in a row"])
def test_it_holds_what_a_dict_holds(slab_bits: int, first_slabs: int, hashes: str) -> None:
    draw = random.Random(slab_bits * first_slabs)
    candidates = [draw.getrandbits(64) | 2 for _ in range(400)] if hashes == "random" else list(range(2, 402))
    table, plain = BlockTable(slab_bits, first_slabs), dict[int, int]()
    for _ in range(400):
        key, value = draw.choice(candidates), draw.randrange(1, 2**32)
        table.put(key, value)
        plain[key] = value
        key = draw.choice(candidates)
        assert table.claim(key, 9) == plain.get(key, 0)
        plain.setdefault(key, 9)
        key = draw.choice(candidates)
        table.remove(key)
        plain.pop(key, None)
        key = draw.choice(candidates)
        assert table.release(key, 9) == plain.get(key, 0)
        if plain.get(key) == 9:
            del plain[key]
        some = draw.sample(candidates, draw.randrange(100))
        slots = table.find(array(some))
        assert [slot >= 0 for slot in slots.tolist()] == [key in plain for key in some]
        there = slots[slots >= 0]
        assert table.values_at(there).tolist() == [plain[key] for key in some if key in plain]
        if draw.random() < 0.3:
            table.remove_at(there)
            for key in some:
                plain.pop(key, None)
        fresh = [key for key in draw.sample(candidates, draw.randrange(100)) if key not in plain]
        table.put_new(array(fresh), 7)
        plain.update(dict.fromkeys(fresh, 7))
        assert len(table) == len(plain)
    assert {key: table.get(key) for key in candidates} == {key: plain.get(key, 0) for key in candidates}
    slots, keys = table.live()
    assert dict(zip(keys.tolist(), table.values_at(slots).tolist(), strict=True)) == plain


@pytest.mark.parametrize("slab_bits", [4, 7])
def test_new_keys_are_claimed_up_to_the_first_old_one(slab_bits: int) -> None:
    draw = random.Random(slab_bits)
    candidates = [draw.getrandbits(64) | 2 for _ in range(2000)]
    table, plain = BlockTable(slab_bits), dict[int, int]()
    for _ in range(400):
        some = draw.sample(candidates, draw.randrange(40))
        there = [key in plain for key in some]
        count = there.index(True) if any(there) else len(some)
        assert table.claim_new(iter(some), 9) == (count, some[count] if any(there) else 0)
        plain.update(dict.fromkeys(some[:count], 9))
        for key in draw.sample(candidates, draw.randrange(60)):
            table.remove(key)
            plain.pop(key, None)
        assert len(table) == len(plain)
    assert {key: table.get(key) for key in candidates} == {key: plain.get(key, 0) for key in candidates}


def test_claimed_hashes_that_mark_slots_are_shifted() -> None:
    table = BlockTable(4)
    assert table.claim_new([0, 1, 5], 3) == (3, 0)
    assert table.claim_new([7, 1], 4) == (1, key_of(1))
    assert [table.get(key) for key in (key_of(0), key_of(1), 5, 7)] == [3, 3, 3, 4]


def test_deleted_entries_do_not_make_it_grow() -> None:
    table, draw = BlockTable(7), random.Random(3)
    keys_now = [draw.getrandbits(64) | 2 for _ in range(60)]
    for key in keys_now:
        table.put(key, 1)
    before = table.nbytes
    for _ in range(3000):
        table.remove(keys_now.pop(0))
        keys_now.append(draw.getrandbits(64) | 2)
        table.put(keys_now[-1], 1)
    assert all(table.get(key) for key in keys_now)
    assert table.nbytes <= 2 * before


@pytest.mark.parametrize("entries", [60_000, 80_000, 100_000, 120_000])
def test_an_entry_takes_some_twenty_bytes_at_every_size(entries: int) -> None:
    table = BlockTable(first_slabs=8)
    keys = np.unique(np.random.default_rng(1).integers(2, 2**64 - 1, entries, dtype=np.uint64))
    table.put_new(keys, 5)
    assert len(table) == keys.size
    assert table.nbytes <= 26 * keys.size


def test_entries_beyond_a_slabs_end_stand_at_its_start() -> None:
    table = BlockTable(slab_bits=4)
    last = [key for key in range(2, 1000) if key * table._multiplier & table._home == table._home][:12]
    table._fill(0, array(last), np.arange(1, 13, dtype=np.uint32))
    assert [table.get(key) for key in last] == list(range(1, 13))
