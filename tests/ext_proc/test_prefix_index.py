"""The index: who holds a prompt's leading blocks, bounded per endpoint, with no ghosts."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ext_proc.prefix.index import PrefixIndex

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def test_an_empty_index_matches_nothing() -> None:
    index = PrefixIndex(10)
    assert index.matched([1, 2]) == {}
    assert index.matched([]) == {}
    assert index.held(A) == 0


def test_each_endpoint_counts_its_own_leading_blocks() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3])
    index.record(B, [1, 2])
    index.record(C, [9])
    assert index.matched([1, 2, 3, 4]) == {A: 3, B: 2}
    assert index.matched([2, 3]) == {A: 2, B: 1}
    assert index.matched([9, 1]) == {C: 1}


def test_a_gap_ends_the_match() -> None:
    index = PrefixIndex(10)
    index.record(A, [1, 2, 3])
    assert index.matched([1, 7, 3]) == {A: 1}
    assert index.matched([7, 1]) == {}


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
    assert index.held(A) == 4
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
    assert index.held(A) == 2
    index.resize(A, 5)
    index.record(A, [1, 2, 3, 4, 5, 6])
    assert index.held(A) == 5


def test_resize_goes_before_the_first_record() -> None:
    index = PrefixIndex(10)
    index.resize(A, 1)
    index.record(A, [1, 2])
    assert index.held(A) == 1


def test_no_endpoint_outgrows_the_index_limit() -> None:
    index = PrefixIndex(3)
    index.resize(A, 1000)
    index.record(A, [1, 2, 3, 4])
    assert index.held(A) == 3


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
    assert index.held(A) == 2


@pytest.mark.parametrize("count", [1, 23, 24, 25, 200])
def test_any_number_of_holders_is_named(count: int) -> None:
    index = PrefixIndex(10)
    for number in range(count + 5):
        index.record(f"e{number}", [1, 2] if number % 2 else [1])
    for number in range(5):
        index.forget(f"e{number}")
    assert index.matched([1, 2]) == {f"e{number}": 1 + number % 2 for number in range(5, count + 5)}


def test_an_index_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="blocks_per_endpoint 0"):
        PrefixIndex(0)


class _CountingHolders(dict[int, int]):
    """Counts look-ups, the only work that a match does per block."""

    looked_up = 0

    def get(self, key: int, default: int = 0) -> int:  # type: ignore[override]
        self.looked_up += 1
        return super().get(key, default)


@pytest.mark.parametrize("endpoints", [1, 1000])
def test_a_match_looks_at_each_block_once_whatever_the_number_of_endpoints(endpoints: int) -> None:
    index = PrefixIndex(100)
    blocks = list(range(50))
    for number in range(endpoints):
        index.record(f"e{number}", blocks[:20])
    holders = _CountingHolders(index._holders)
    index._holders = holders
    assert set(index.matched(blocks).values()) == {20}
    assert holders.looked_up == 22  # the first twice, and the one that nobody holds


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
        for address, held in self.recent.items():
            leading = next((n for n, block in enumerate(chain) if block not in held), len(chain))
            if leading:
                expected[address] = leading
        assert self.index.matched(chain) == expected

    @invariant()
    def what_was_recorded_matches(self) -> None:
        for chain in self.chains[-5:]:
            self._compare(chain)

    @invariant()
    def holds_the_same_and_stays_bounded(self) -> None:
        for address in (A, B, C, "10.0.0.4:8000"):
            assert self.index.held(address) == len(self.recent.get(address, []))
            assert self.index.held(address) <= self.limits.get(address, GUARD)

    @invariant()
    def what_is_held_is_closed_under_prefixes(self) -> None:
        for address, held in self.recent.items():
            for chain in self.chains:
                kept = [block in held for block in chain]
                assert kept == sorted(kept, reverse=True), address

    @invariant()
    def masks_and_endpoints_agree(self) -> None:
        counted: dict[int, int] = {}
        for endpoint in self.index._endpoints.values():
            for block in endpoint.blocks:
                counted[block] = counted.get(block, 0) | endpoint.bit
        assert self.index._holders == counted

    @invariant()
    def slots_are_used_again(self) -> None:
        assert len(self.index._addresses) <= 4


TestIndexMachine = IndexMachine.TestCase
TestIndexMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
