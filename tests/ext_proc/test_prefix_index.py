"""The index: who holds a prompt's leading blocks, bounded per endpoint, with no ghosts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ext_proc.prefix import index as prefix_index
from ext_proc.prefix.index import PrefixIndex

if TYPE_CHECKING:
    from collections.abc import Container

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def test_an_empty_index_matches_nothing() -> None:
    index = PrefixIndex(10)
    assert index.matched([1, 2]) == {}
    assert index.matched([]) == {}
    assert index.block_count(A) == 0


def test_each_endpoint_counts_its_own_leading_blocks() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3])
    index.record(B, [1, 2])
    index.record(C, [9])
    assert index.matched([1, 2, 3, 4]) == {A: 3, B: 2}
    assert index.matched([2, 3]) == {A: 2, B: 1}
    assert index.matched([9, 1]) == {C: 1}


def test_a_prompt_that_leaves_the_known_path_matches_up_to_there() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3])
    assert index.matched([1, 7, 8]) == {A: 1}
    assert index.matched([7, 8]) == {}


def test_a_record_tells_how_many_blocks_are_new_there() -> None:
    index = PrefixIndex(4)
    assert index.record(A, [1, 2, 3]) == 3
    assert index.record(A, [1, 2, 4]) == 1
    assert index.record(A, [1, 2, 3]) == 0
    assert index.record(B, [1, 2, 3, 5, 6]) == 4
    assert index.record(B, [1, 2, 3, 5, 6]) == 0


def test_what_is_taken_back_is_held_no_more_and_the_rest_is() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3, 4])
    index.record(B, [1, 2, 3, 4])
    index.take_back(A, [1, 2, 3, 4], 2)
    assert index.matched([1, 2, 3, 4]) == {A: 2, B: 4}
    assert index.block_count(A) == 2
    index.take_back(A, [1, 2, 3], 0)
    index.take_back(C, [1, 2, 3], 0)
    assert index.matched([1, 2, 3, 4]) == {B: 4}
    assert index.record(A, [1, 2]) == 2


def test_levels_name_holders_by_slot() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3])
    index.record(B, [1, 2])
    assert index.levels([1, 2, 3, 4]) == [(2, 1 << index.slot(B)), (3, 1 << index.slot(A))]
    assert index.slot(C) == -1


def test_hashes_that_mark_slots_are_hashes_like_others() -> None:
    index = PrefixIndex(10)
    index.record(A, [0, 1, 2])
    assert index.matched([0, 1, 2]) == {A: 3}
    assert index.matched([1]) == {A: 1}
    index.resize(A, 0)
    assert index.matched([0]) == {}


def test_tails_go_before_heads() -> None:
    index = PrefixIndex(4)
    index.record(A, [1, 2, 3])
    index.record(A, [11, 12])
    assert index.matched([1, 2, 3]) == {A: 2}
    assert index.matched([11, 12]) == {A: 2}


def test_a_shared_head_outlives_the_tails_that_are_not_used() -> None:
    index = PrefixIndex(4)
    index.record(A, [1, 2, 3])
    index.record(A, [1, 2, 4])
    index.record(A, [1, 2, 5])
    assert index.block_count(A) == 4
    assert index.matched([1, 2, 5]) == {A: 3}
    assert index.matched([1, 2, 4]) == {A: 3}
    assert index.matched([1, 2, 3]) == {A: 2}


def test_a_prompt_larger_than_the_endpoint_keeps_its_head() -> None:
    index = PrefixIndex(3)
    index.record(A, [1, 2, 3, 4, 5])
    assert index.matched([1, 2, 3, 4, 5]) == {A: 3}


def test_resize_evicts_and_holds_for_later() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3, 4])
    index.resize(A, 2)
    assert index.matched([1, 2, 3, 4]) == {A: 2}
    index.record(A, [11, 12, 13])
    assert index.block_count(A) == 2
    index.resize(A, 5)
    index.record(A, [1, 2, 3, 4, 5, 6])
    assert index.block_count(A) == 5


@pytest.mark.untraced
@pytest.mark.parametrize("limit", [1, 127, 1000, 100_000])
def test_eviction_leaves_an_endpoint_nearly_full(limit: int) -> None:
    index, draw = PrefixIndex(limit), random.Random(limit)
    for _ in range(limit * 3 // 2 // 50 + 3):
        index.record(A, [draw.getrandbits(64) for _ in range(50)])
        assert index.block_count(A) <= limit
    assert index.block_count(A) >= limit - limit // 128


def test_blocks_count_by_their_length() -> None:
    index = PrefixIndex(100, [0, 1, 2, 12, 22, 32, 92, 152])
    index.record(A, [1, 2, 3, 4, 5, 6, 7])
    assert index.matched([1, 2, 3, 4, 5, 6, 7]) == {A: 6}, "what fits"
    index.record(A, [11, 12])
    assert index.block_count(A) == 8, "94 units"
    index.record(A, [11, 12, 13])
    assert index.matched([11, 12, 13]) == {A: 3}
    assert index.matched([1, 2, 3, 4, 5, 6]) == {A: 5}, "the tail was used first"


def test_a_prompt_longer_than_any_of_ours_is_cut() -> None:
    index = PrefixIndex(100, [0, 1, 2, 4])
    index.record(A, [1, 2, 3, 4, 5])
    index.take_back(A, [1, 2, 3, 4, 5], 2)
    assert index.matched([1, 2, 3, 4, 5]) == {A: 2}


def test_what_is_taken_back_leaves_its_room() -> None:
    index = PrefixIndex(100, [0, 1, 2, 12, 22, 32, 92])
    index.record(A, [1, 2, 3, 4, 5, 6])
    index.take_back(A, [1, 2, 3, 4, 5, 6], 2)
    index.record(A, [11, 12, 13, 14, 15, 16])
    assert index.block_count(A) == 8


def test_resize_goes_before_the_first_record() -> None:
    index = PrefixIndex(10)
    index.resize(A, 1)
    index.record(A, [1, 2])
    assert index.block_count(A) == 1


def test_no_endpoint_outgrows_the_index_limit() -> None:
    index = PrefixIndex(3)
    index.resize(A, 1000)
    index.record(A, [1, 2, 3, 4])
    assert index.block_count(A) == 3


@pytest.mark.parametrize("limit", [0, -1])
def test_an_endpoint_without_room_holds_nothing(limit: int) -> None:
    index = PrefixIndex(3)
    index.record(A, [1, 2])
    index.resize(A, limit)
    index.record(A, [1, 2])
    assert index.matched([1, 2]) == {}


def test_forgotten_endpoints_leave_no_ghost_in_a_reused_slot() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2])
    index.record(B, [1])
    index.forget(A)
    index.forget(A)
    index.record(C, [5])
    assert index.matched([1, 2]) == {B: 1}
    assert index.matched([5]) == {C: 1}
    index.record(A, [1])
    assert index.matched([1]) == {A: 1, B: 1}


def test_forget_drops_the_size_too() -> None:
    index = PrefixIndex(10)
    index.resize(A, 1)
    index.forget(A)
    index.record(A, [1, 2])
    assert index.block_count(A) == 2


@pytest.mark.parametrize("count", [1, 23, 24, 25, 200])
def test_any_number_of_holders_is_named(count: int) -> None:
    index = PrefixIndex(10)
    for number in range(count + 5):
        index.record(f"e{number}", [1, 2] if number % 2 else [1])
    for number in range(5):
        index.forget(f"e{number}")
    assert index.matched([1, 2]) == {f"e{number}": 1 + number % 2 for number in range(5, count + 5)}


def test_an_index_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="units_per_endpoint 0"):
        PrefixIndex(0)


class Counted(list[int]):
    """Blocks that count the look-ups."""

    reads = 0

    def __getitem__(self, place: Any) -> Any:
        self.reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("endpoints", [1, 1000])
def test_match_looks_up_few_blocks_for_any_fleet(endpoints: int) -> None:
    """Each change of holders is found by bisection."""
    index = PrefixIndex(1000)
    blocks = Counted(random.Random(1).getrandbits(64) + number for number in range(512))
    for number in range(endpoints):
        index.record(f"e{number}", list(blocks)[:20])
    assert set(index.matched(blocks).values()) == {20}
    assert 2 <= blocks.reads <= 2 + 9


@pytest.mark.untraced
def test_many_changes_of_holders_take_bounded_look_ups() -> None:
    index, draw = PrefixIndex(1000), random.Random(4)
    blocks = Counted(draw.getrandbits(64) for _ in range(512))
    truth = {f"e{number}": draw.randrange(1, 513) for number in range(600)}
    for address, depth in truth.items():
        index.record(address, list(blocks)[:depth])
    matches = index.matched(blocks)
    assert 64 <= blocks.reads <= 64 + 2 * 32
    assert matches.keys() == truth.keys()
    assert all(truth[address] - 512 // 32 <= depth <= truth[address] for address, depth in matches.items())


def test_large_cache_is_forgotten_now_and_removed_in_steps() -> None:
    """No ghost while it is removed, and none in the slot that is free after that."""
    draw = random.Random(2)
    index = PrefixIndex(5000)
    blocks = [draw.getrandbits(64) for _ in range(3000)]
    index.record(A, blocks)
    index.record(B, blocks[:100])
    index.forget(A)
    assert index.block_count(A) == 0
    assert index.matched(blocks) == {B: 100}
    index.record(A, blocks[:7])
    assert index.matched(blocks) == {A: 7, B: 100}
    for _ in range(8):
        index.record(C, blocks[:1])
    assert len(index) == 100
    index.record("10.0.0.9:8000", blocks[:2])
    assert index.matched(blocks) == {A: 7, B: 100, C: 1, "10.0.0.9:8000": 2}
    assert len(index._addresses) == 4, "the slot is used again"


@pytest.mark.parametrize("blocks", [[5, 5, 5, 5], [7, 2, 7, 3], [3, 2, 1] * 20, list(range(2, 140)) * 2])
@pytest.mark.parametrize("at_once", [1, 1000])
def test_what_is_no_chain_upsets_nothing(
    monkeypatch: pytest.MonkeyPatch, blocks: list[int], at_once: int
) -> None:
    """Such a list comes from a broken peer only. All is still bounded, and forgotten without a trace."""
    monkeypatch.setattr(prefix_index, "_AT_ONCE", at_once)
    index = PrefixIndex(30)
    for _ in range(3):
        index.record(A, [1, 2, 3])
        index.record(A, blocks)
        index.record(B, blocks[::-1])
    assert index.block_count(A) <= 30
    for address in (A, B):
        index.forget(address)
    assert len(index) == 0
    assert len(index._sets) == 1, "the empty one"


def test_a_run_with_holes_is_no_run() -> None:
    """In a chain none can be between two blocks that stand as far apart as in the prompt."""
    index = PrefixIndex(30)
    for blocks in ([1, 2, 3, 4], [1, 5], [2]):
        index.record(A, blocks)
    assert index.block_count(A) == 5
    index.record(A, [1, 7, 8, 9, 3])  # 1 and 3 stand as far apart as here, with 2 gone between.
    for number in range(10, 100):
        index.record(A, [number, number + 100])
    assert index.block_count(A) <= 30
    index.forget(A)
    assert len(index) == 0


@pytest.mark.untraced
@pytest.mark.parametrize("seed", range(4))
def test_long_prompts_match_as_in_a_plain_model(seed: int) -> None:
    """Conversations over a few endpoints, with blocks by the hundred: the way through arrays."""
    draw = random.Random(seed)
    limit = 1500
    index = PrefixIndex(limit)
    recent: dict[str, dict[int, None]] = {A: {}, B: {}, C: {}}
    chains = [[draw.getrandbits(64) for _ in range(draw.choice([3, 200]))] for _ in range(4)]
    for step in range(150):
        chain = draw.choice(chains)
        address = draw.choice([A, B, C])
        kept = chain[: draw.randrange(len(chain))] + [
            draw.getrandbits(64) for _ in range(draw.choice([1, 30, 300]))
        ]
        chains.append(kept)
        blocks_there = recent[address]
        assert index.record(address, kept) == len(kept[:limit]) - leading(blocks_there, kept[:limit])
        for block in reversed(kept[:limit]):
            blocks_there.pop(block, None)
            blocks_there[block] = None
        if len(blocks_there) > limit:
            for block in list(blocks_there)[: len(blocks_there) - limit + limit // 128]:
                del blocks_there[block]
        prompt = draw.choice(chains)
        expected = {name: leading(blocks, prompt) for name, blocks in recent.items()}
        assert index.matched(prompt) == {name: depth for name, depth in expected.items() if depth}
        assert [index.block_count(name) for name in recent] == [len(blocks) for blocks in recent.values()]
        if step == 100:
            index.forget(B)
            recent[B] = {}


def leading(blocks: Container[int], chain: list[int]) -> int:
    return next((depth for depth, block in enumerate(chain) if block not in blocks), len(chain))


ADDRESSES = st.sampled_from([A, B, C, "10.0.0.4:8000"])
# Chains as prompts make them: a block tells its whole prefix.
CHAINS = st.lists(st.integers(0, 2), max_size=6).map(
    lambda path: [hash(tuple(path[: end + 1])) & (2**64 - 1) for end in range(len(path))]
)
GUARD = 8


class IndexMachine(RuleBasedStateMachine):
    """The index against lists of blocks, the most recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.index = PrefixIndex(GUARD)
        self.recent: dict[str, list[int]] = {}
        self.limits: dict[str, int] = {}
        self.chains: list[list[int]] = []

    def _trim(self, address: str) -> None:
        del self.recent.get(address, [])[self.limits.get(address, GUARD) :]

    @rule(address=ADDRESSES, chain=CHAINS)
    def record(self, address: str, chain: list[int]) -> None:
        self.index.record(address, chain)
        self.chains.append(chain)
        old = self.recent.get(address, [])
        self.recent[address] = chain + [block for block in old if block not in chain]
        self._trim(address)

    @rule(address=ADDRESSES, chain=CHAINS, kept=st.integers(0, 6))
    def take_back(self, address: str, chain: list[int], kept: int) -> None:
        """Unless another prompt extends the removed blocks."""
        blocks = self.recent.get(address, [])
        limited = chain[: self.limits.get(address, GUARD)]
        further = [other for other in self.chains if limited[kept : kept + 1] == other[kept : kept + 1]]
        if any(block in blocks and block not in limited for other in further for block in other[kept:]):
            return
        self.index.take_back(address, chain, kept)
        if kept >= len(limited) or address not in self.recent:
            return
        used = [block for block in limited[:kept] if block in blocks]
        gone = set(limited)
        self.recent[address] = used + [block for block in blocks if block not in gone]

    @rule(address=ADDRESSES, limit=st.integers(0, GUARD + 3))
    def resize(self, address: str, limit: int) -> None:
        self.index.resize(address, limit)
        self.limits[address] = min(limit, GUARD)
        self._trim(address)

    @rule(address=ADDRESSES)
    def forget(self, address: str) -> None:
        self.index.forget(address)
        self.recent.pop(address, None)
        self.limits.pop(address, None)

    @rule(chain=CHAINS)
    def match(self, chain: list[int]) -> None:
        self._compare(chain)

    def _compare(self, chain: list[int]) -> None:
        expected = {}
        for address, blocks in self.recent.items():
            if depth := leading(blocks, chain):
                expected[address] = depth
        assert self.index.matched(chain) == expected

    @invariant()
    def what_was_recorded_matches(self) -> None:
        for chain in self.chains[-5:]:
            self._compare(chain)

    @invariant()
    def holds_the_same_and_stays_bounded(self) -> None:
        for address in (A, B, C, "10.0.0.4:8000"):
            assert self.index.block_count(address) == len(self.recent.get(address, []))
            assert self.index.block_count(address) <= self.limits.get(address, GUARD)

    @invariant()
    def what_is_held_is_closed_under_prefixes(self) -> None:
        for address, held in self.recent.items():
            for chain in self.chains:
                kept = [block in held for block in chain]
                assert kept == sorted(kept, reverse=True), address

    @invariant()
    def nothing_is_left_of_what_nobody_holds(self) -> None:
        assert len(self.index) == len({block for held in self.recent.values() for block in held})
        assert len(self.index._sets) <= 1 + 2**4

    @invariant()
    def slots_are_used_again(self) -> None:
        assert len(self.index._addresses) <= 4


class ArraysMachine(IndexMachine):
    """The same with every change made in arrays."""

    def __init__(self) -> None:
        super().__init__()
        self._at_once, prefix_index._AT_ONCE = prefix_index._AT_ONCE, 1  # type: ignore[misc]

    def teardown(self) -> None:
        prefix_index._AT_ONCE = self._at_once  # type: ignore[misc]


TestIndexMachine = IndexMachine.TestCase
TestArraysMachine = ArraysMachine.TestCase
TestArraysMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
