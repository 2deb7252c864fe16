"""Warmth: what routing asks, with its levels together and its rules about who is there."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prefix.index import DepthColumn, PrefixIndex
from ext_proc.prefix.warmth import Warmth

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def test_news_are_told_with_the_whole_prompt() -> None:
    calls: list[tuple[str, list[int]]] = []
    warmth = Warmth(10, on_added=lambda address, blocks: calls.append((address, blocks)))
    warmth.record(A, [1, 2])
    warmth.record(A, [1, 2])
    warmth.record(A, [1])
    warmth.record(A, [1, 2, 3])
    warmth.record(B, (1, 2))
    assert calls == [(A, [1, 2]), (A, [1, 2, 3]), (B, [1, 2])]


def test_what_cannot_be_held_is_no_news() -> None:
    calls: list[str] = []
    warmth = Warmth(10, on_added=lambda address, _: calls.append(address))
    warmth.index.resize(A, 0)
    warmth.record(A, [1, 2])
    assert calls == []


def test_what_others_tell_counts_and_is_not_told_on() -> None:
    calls: list[str] = []
    warmth = Warmth(10, on_added=lambda address, _: calls.append(address))
    warmth.index.resize(A, 5)
    assert warmth.add_remote(A, [1, 2, 3]) == 0
    assert warmth.index.matched([1, 2, 9]) == {A: 2}
    assert warmth.add_remote(B, [1, 2, 3]) is None, "unknown endpoints do not grow the index"
    assert warmth.index.matched([1]) == {A: 1}
    assert calls == []


def test_a_record_tells_how_much_was_held_before() -> None:
    warmth = Warmth(10)
    warmth.index.resize(A, 3)
    assert [warmth.record(A, [1, 2]), warmth.record(A, [1, 2, 3, 4, 5])] == [0, 2]
    assert warmth.add_remote(A, [1, 2, 3, 4, 5]) == 3
    warmth.take_back(A, [1, 2, 3, 4, 5], 2)
    assert warmth.index.matched([1, 2, 3]) == {A: 2}


def test_remote_and_own_blocks_are_one() -> None:
    warmth = Warmth(10)
    warmth.record(A, [1, 2])
    warmth.add_remote(A, [1, 2, 3])
    warmth.record(A, [1, 2, 3, 4])
    assert warmth.index.block_count(A) == 4
    assert warmth.index.matched([1, 2, 3, 4, 5]) == {A: 4}


def test_who_left_is_forgotten_after_the_grace() -> None:
    warmth = Warmth(10, grace_seconds=60.0)
    warmth.keep([A, B], 0.0)
    warmth.record(A, [1, 2])
    warmth.record(B, [1])
    warmth.keep([B], 100.0)
    assert warmth.expire(159.0) == []
    assert warmth.index.block_count(A) == 2
    assert warmth.expire(160.0) == [A]
    assert warmth.index.block_count(A) == 0
    assert warmth.index.matched([1, 2]) == {B: 1}


def test_who_returns_in_time_keeps_all() -> None:
    """A source that flaps costs no warmth."""
    warmth = Warmth(10, grace_seconds=60.0)
    warmth.keep([A, B], 0.0)
    warmth.record(A, [1, 2])
    for begin in range(0, 200, 40):
        warmth.keep([B], begin)
        warmth.keep([A, B], begin + 30.0)
    assert warmth.expire(1000.0) == []
    assert warmth.index.matched([1, 2]) == {A: 2}


def test_the_grace_counts_from_when_it_left() -> None:
    warmth = Warmth(10, grace_seconds=60.0)
    warmth.record(A, [1])
    warmth.leave(A, 10.0)
    warmth.leave(A, 50.0)
    warmth.keep([], 55.0)
    assert warmth.expire(69.0) == []
    assert warmth.expire(70.0) == [A]


def test_an_engine_that_restarted_is_forgotten_at_once() -> None:
    warmth = Warmth(10)
    warmth.keep([A, B], 0.0)
    for address in (A, A, B):
        warmth.record(address, [1, 2])
        warmth.leading.record(7, address)
    warmth.forget(A)
    assert warmth.index.matched([1, 2]) == {B: 2}
    assert warmth.leading.holders(7) == (B,)
    assert warmth.expire(1e9) == []


def test_as_many_as_leave_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ext_proc.prefix.warmth._MOST_LEAVING", 2)
    warmth = Warmth(10)
    for address in (A, B, C):
        warmth.record(address, [1])
        warmth.leave(address, 0.0)
    assert warmth.index.matched([1]) == {B: 1, C: 1}


def test_popularity_is_of_what_was_asked() -> None:
    warmth = Warmth(10, popularity_seconds=10.0)
    for _ in range(50):
        warmth.popularity.count([1, 2, 3], 5.0)
    rates, _ = warmth.popularity.rates_and_totals([1, 2, 4], 5.0, (), 0.0)
    assert rates.tolist() == pytest.approx([5.0, 5.0, 0.0])


@pytest.mark.parametrize("strangers", [[], ["stranger"]])
@pytest.mark.parametrize("endpoints", [1, 7, 300])
def test_a_column_says_what_the_mapping_says(endpoints: int, strangers: list[str]) -> None:
    """In the order of its addresses, for those that come, go and return as well."""
    draw = random.Random(endpoints)
    warmth = Warmth(200)
    addresses = [f"e{number}" for number in range(endpoints)]
    for address in addresses:
        warmth.index.resize(address, 200)
    order = [*addresses, *strangers]
    column = DepthColumn(warmth.index, order)
    shared = [draw.getrandbits(64) for _ in range(40)]
    for step in range(4):
        for address in draw.sample(addresses, endpoints // 2 + 1):
            warmth.record(address, shared[: draw.randrange(1, 40)])
        matches = warmth.index.matched(shared)
        assert column.matched(shared).tolist() == [matches.get(address, 0) for address in order]
        assert column.matched([5]).tolist() == [0] * len(order)
        assert column.matched([]).tolist() == [0] * len(order)
        warmth.forget(addresses[step % endpoints])


OPERATIONS = st.lists(
    st.tuples(st.sampled_from([A, B]), st.lists(st.integers(0, 2), min_size=1, max_size=6)), max_size=30
)


def chain(path: list[int]) -> list[int]:
    """Hashes that tell their whole prefix, as a prompt's do."""
    return [hash(tuple(path[: end + 1])) & (2**64 - 1) for end in range(len(path))]


@given(OPERATIONS, OPERATIONS)
def test_equal_histories_make_equal_answers(
    records: list[tuple[str, list[int]]], asks: list[tuple[str, list[int]]]
) -> None:
    """Whatever is drawn at random inside, workers that saw the same tell the same."""
    one, other = PrefixIndex(6), PrefixIndex(6)
    for address, path in records:
        assert one.record(address, chain(path)) == other.record(address, chain(path))
    for _, path in asks:
        assert one.matched(chain(path)) == other.matched(chain(path))


@given(OPERATIONS, OPERATIONS)
def test_matches_are_true_below_the_limit_and_never_above(
    records: list[tuple[str, list[int]]], asks: list[tuple[str, list[int]]]
) -> None:
    roomy, tight = Warmth(1000), Warmth(4)
    sent: dict[str, set[int]] = {A: set(), B: set()}
    for address, path in records:
        for warmth in (roomy, tight):
            warmth.record(address, chain(path))
        sent[address].update(chain(path))
    for _, path in asks:
        prompt = chain(path)
        truth = {
            address: depth
            for address, blocks_there in sent.items()
            if (
                depth := next(
                    (at for at, block in enumerate(prompt) if block not in blocks_there), len(prompt)
                )
            )
        }
        assert roomy.index.matched(prompt) == truth
        assert all(depth <= truth.get(address, 0) for address, depth in tight.index.matched(prompt).items())
    assert all(tight.index.block_count(address) <= 4 for address in (A, B))
