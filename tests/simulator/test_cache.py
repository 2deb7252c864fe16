"""The block cache's promises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmroute.simulator.cache import BlockCache


def fill(cache: BlockCache, chain: list[int]) -> None:
    """Use and complete the blocks of `chain`, as one request would."""
    matched = cache.match(chain, len(chain))
    assert cache.admit(chain, matched, len(chain) - matched)
    assert cache.take(len(chain) - matched)
    for name in chain[matched:]:
        cache.name(name)


def test_released_blocks_stay_warm_and_read_as_unused() -> None:
    """As in vLLM: warm idle blocks do not count as used."""
    cache = BlockCache(10)
    fill(cache, [1, 2, 3])
    cache.release([1, 2, 3], 0)
    assert (cache.used, cache.idle, cache.match([1, 2, 3, 4], 4)) == (0, 3, 3)


def test_a_match_stops_at_the_first_gap_and_at_the_limit() -> None:
    """A later block without its prefix is worth nothing."""
    cache = BlockCache(10)
    fill(cache, [1, 2, 3])
    assert cache.match([1, 9, 3], 3) == 1
    assert cache.match([1, 2, 3], 2) == 2


def test_the_tail_is_evicted_before_the_prefix() -> None:
    """When room is needed a sequence loses its end first."""
    cache = BlockCache(4)
    fill(cache, [1, 2, 3, 4])
    cache.release([1, 2, 3, 4], 0)
    assert cache.take(1)
    assert cache.match([1, 2, 3, 4], 4) == 3


def test_the_oldest_sequence_is_evicted_first() -> None:
    """Least recently used, by the time of release."""
    cache = BlockCache(4)
    fill(cache, [1, 2])
    cache.release([1, 2], 0)
    fill(cache, [11, 12])
    cache.release([11, 12], 0)
    fill(cache, [1, 2])  # used again, so it is the younger one now
    cache.release([1, 2], 0)
    assert cache.take(2)
    assert cache.match([1, 2], 2) == 2
    assert cache.match([11, 12], 2) == 0


def test_shared_blocks_count_once_and_live_as_long_as_a_user() -> None:
    """Reference counts."""
    cache = BlockCache(3)
    fill(cache, [1, 2])
    fill(cache, [1, 2])
    assert cache.used == 2
    cache.release([1, 2], 0)
    assert cache.used == 2
    assert not cache.take(2)
    cache.release([1, 2], 0)
    assert cache.used == 0


def test_admission_counts_the_warm_blocks_it_wakes() -> None:
    """Idle blocks are room only as long as they are not the ones that the request itself needs."""
    cache = BlockCache(4)
    fill(cache, [1, 2, 3])
    cache.release([1, 2, 3], 0)
    assert not cache.admit([1, 2, 3], 3, 2)
    assert cache.used == 0
    assert cache.admit([1, 2, 3], 3, 1)


def test_a_failing_cache_gives_nothing_and_keeps_what_it_has() -> None:
    """Memory out: no block to be had, old ones stay."""
    cache = BlockCache(4)
    fill(cache, [1])
    cache.failing = True
    assert not cache.take(1)
    assert not cache.admit([1], 1, 0)
    assert cache.used == 1


def test_a_cache_has_at_least_one_block() -> None:
    """Zero blocks make no engine."""
    with pytest.raises(ValueError, match="num_blocks"):
        BlockCache(0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6), st.booleans()), max_size=60))
def test_never_more_than_num_blocks(ops: list[tuple[int, int, bool]]) -> None:
    """Whatever sequences come and go, used and idle blocks together fit, and all come back."""
    cache = BlockCache(8)
    in_use: list[list[int]] = []
    for family, length, end in ops:
        if end and in_use:
            cache.release(in_use.pop(0), 0)
        chain = [family * 100 + index for index in range(length)]
        matched = cache.match(chain, length)
        if cache.admit(chain, matched, length - matched):
            assert cache.take(length - matched)
            for name in chain[matched:]:
                cache.name(name)
            in_use.append(chain)
        assert cache.used + cache.idle <= 8
        assert cache.used == len({name for chain in in_use for name in chain})
    for chain in in_use:
        cache.release(chain, 0)
    assert cache.used == 0
