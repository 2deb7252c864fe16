"""What workers tell each other as bytes: the same after reading, small, and harmless when it is not ours."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.shared.batch import MAX_BATCH_BLOCKS, Addition, BatchError, decode, encode
from ext_proc.shared.outbox import Budget, Outbox

MOST = 65_536

chains = st.lists(st.integers(0, 2**64 - 1), max_size=40, unique=True)


@st.composite
def additions(draw: st.DrawFn) -> list[Addition]:
    """Prompts that share leading blocks, as chained hashes do: what follows a difference differs too."""
    stems = draw(st.lists(chains, min_size=1, max_size=3))
    made = []
    for number in range(draw(st.integers(0, 8))):
        stem = draw(st.sampled_from(stems))
        kept = draw(st.integers(0, len(stem)))
        tail = [hash((number, position)) % 2**64 for position in range(draw(st.integers(0, 5)))]
        made.append(Addition(draw(st.sampled_from(["10.0.0.1:80", "[::1]:80", "ä:1"])), stem[:kept] + tail))
    return made


@given(additions())
def test_batch_round_trip(written: list[Addition]) -> None:
    assert list(decode(encode(written, 256), 256, MOST)) == written


def test_shared_beginning_is_written_once() -> None:
    stem = list(range(1000, 1400))
    batch = [Addition("a:1", [*stem, number]) for number in range(50)]
    assert len(encode(batch, 256)) < 400 * 8 + 50 * 30


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"not a batch at all",
        msgspec.msgpack.encode({"version": 1}),
        msgspec.msgpack.encode([3, 256, ["a:1"], []]),
        msgspec.msgpack.encode([2, 512, ["a:1"], []]),
        msgspec.msgpack.encode([2, 256, ["a:1"], [[0, 0, 0, b"1234567"]]]),
        msgspec.msgpack.encode([2, 256, ["a:1"], [[1, 0, 0, b"12345678"]]]),
        msgspec.msgpack.encode([2, 256, ["a:1"], [[0, 0, 1, b""]]]),
        msgspec.msgpack.encode([2, 256, ["a:1"], [[0, 5, 1, b""]]]),
        msgspec.msgpack.encode([2, 256, ["a:1"], [[0, -1, 0, b""]]]),
        msgspec.msgpack.encode([2, 256, ["a:1"], [[0, 0, 0, "text"]]]),
    ],
)
def test_foreign_batch_is_refused(data: bytes) -> None:
    with pytest.raises(BatchError):
        list(decode(data, 256, MOST))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_refused(data: bytes) -> None:
    with contextlib.suppress(BatchError):
        list(decode(data, 256, MOST))


def test_small_entry_cannot_grow_huge() -> None:
    many = [[0, 0, 0, bytes(8 * 1000)], *([0, 0, 1000, b""] for _ in range(1000))]
    found = list(decode(msgspec.msgpack.encode([2, 256, ["a:1"], many]), 256, 2000))
    assert sum(len(addition.blocks) for addition in found) <= MAX_BATCH_BLOCKS + 2000


@pytest.mark.parametrize(
    "entries", [[[0, 0, 0, b""]] * 65_536, [[0, 0, 0, bytes(8)]] * 5000, [[0, 0, 0, bytes(8 * 60_000)]] * 3]
)
def test_oversized_batch_is_refused_before_reading(entries: list[list[object]]) -> None:
    """All of it would hold whoever reads it up, for next to nothing or for nothing."""
    found = decode(msgspec.msgpack.encode([2, 256, ["a:1"], entries]), 256, MOST)
    with pytest.raises(BatchError):
        next(found)


@given(additions(), st.integers(1, 30))
def test_prompt_is_read_up_to_local_limit(written: list[Addition], longest: int) -> None:
    cut = [Addition(address, blocks[:longest]) for address, blocks in written]
    assert list(decode(encode(written, 256), 256, longest)) == cut


def test_batch_is_read_lazily() -> None:
    """Whoever reads it can pause between two: what is wrong behind is not looked at before."""
    found = decode(
        msgspec.msgpack.encode([2, 256, ["a:1"], [[0, 0, 0, bytes(8)], [9, 0, 0, b""]]]), 256, MOST
    )
    assert next(found) == Addition("a:1", [0])
    with pytest.raises(BatchError):
        next(found)


def test_outbox_drops_oldest_and_counts_blocks() -> None:
    outbox = Outbox(10)
    for number in range(4):
        outbox.add(f"e{number}", [1, 2, 3, 4])
    assert (outbox.blocks, outbox.dropped) == (8, 8)
    assert [addition.address for addition in outbox.take(100)] == ["e2", "e3"]
    assert outbox.blocks == 0


def test_outbox_takes_at_least_one_addition() -> None:
    outbox = Outbox(100)
    outbox.add("long", list(range(50)))
    outbox.add("short", [1])
    outbox.add("short", [2])
    assert [len(addition.blocks) for addition in outbox.take(10)] == [50]
    assert len(outbox.take(10)) == 2
    assert outbox.take(10) == []


def test_unsent_additions_come_first() -> None:
    outbox = Outbox(6)
    outbox.add("first", [1, 2])
    taken = outbox.take(10)
    outbox.add("second", [3, 4])
    outbox.put_back(taken)
    assert [addition.address for addition in outbox.take(2)] == ["first"]
    outbox.put_back([Addition("first", [1, 2])])
    outbox.add("third", [5, 6, 7, 8])
    assert [addition.address for addition in outbox.take(10)] == ["second", "third"]


def test_addition_larger_than_outbox_is_dropped() -> None:
    outbox = Outbox(6)
    outbox.add("huge", list(range(7)))
    assert (outbox.blocks, outbox.dropped, outbox.take(10)) == (0, 7, [])


def test_budget_fills_up_to_one_second() -> None:
    budget = Budget(100, 0.0)
    assert budget.available(50.0) == 100
    budget.spend(150)
    assert budget.available(50.0) == -50
    assert budget.available(50.75) == 25
    assert budget.available(49.0) == 25
