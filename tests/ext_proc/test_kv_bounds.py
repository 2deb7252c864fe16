"""Whatever a message tells, it takes little memory, and the loop only ever waits for a part of it."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ext_proc.kv.blocks import SWEPT, BlockIndex
from ext_proc.kv.events import MAX_BLOCKS, MAX_TOKENS_AT_ONCE, Fault, Removed, Stored, events_of
from ext_proc.kv.view import Freshness
from tests.ext_proc.kv_worlds import CLEARED, World, batch, decode_batch, pack, removed, settle, stored

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 16
PROMPT = list(range(100, 100 + 4 * SIZE + 1))


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


HOSTILE: dict[str, Any] = {
    "one long string among short ones for ids": stored([1], None, [], SIZE)
    | {"token_ids": ["x" * 50_000, *["a"] * 500]},
    "lists for ids": stored([1], None, [], SIZE) | {"token_ids": [[]] * 100_000},
    "lists for hashes": removed(*[[]] * 100_000),
    "lists for an adapter's number": stored([1], None, [1], 1, lora_id=[[]] * 100_000),
    "lists for a group": stored([1], None, [1], 1, group_idx=[[]] * 100_000),
    "lists in what is not known here": {"type": "Unknown", "x": [[]] * 100_000},
    "a block's identity of many parts": stored([1], None, [1], 1, extra_keys=[[[]] * 100_000]),
    "identities of many blocks": stored(range(2000), None, range(2000), 1, extra_keys=[[[[]] * 50]] * 2000),
    "nested": stored([1], None, [1], 1, extra_keys=[nested(400)]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_message_takes_much_more_memory_than_its_bytes(name: str) -> None:
    payload = batch(HOSTILE[name])
    assert peak_of(lambda: drain(payload)) < 12 * len(payload) + 100_000


def test_of_a_message_of_too_many_events_none_is_made() -> None:
    payload = batch(*[[]] * 200_000)
    assert peak_of(lambda: drain(payload)) < len(payload)
    assert decode_batch(payload).malformed == 1


def peak_of(work: Callable[[], object]) -> int:
    """Return the bytes that are allocated at the same time, at most."""
    work()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def drain(payload: bytes) -> None:
    for _ in events_of(payload):
        pass


@pytest.mark.untraced
@pytest.mark.parametrize("event", [
    ["BlockRemoved", [1]], removed(2**63 + 1), ["Unknown"], [], removed(),
    stored([1], None, [1], 1, group_idx=1),
])  # fmt: skip
def test_of_many_events_one_is_read_at_a_time(event: Any) -> None:
    """Each step is a small part of the whole, whatever is told: also what is passed over."""
    payload = batch(*[event] * 20_000)

    def longest_share() -> float:
        ticks = [time.thread_time(), *(time.thread_time() for _ in events_of(payload))]
        steps = [after - before for before, after in pairwise(ticks)]
        assert len(steps) >= 20_000
        return max(steps) / sum(steps)

    assert min(longest_share() for _ in range(5)) < 0.25


def test_long_removals_come_in_parts() -> None:
    events = decode_batch(batch(removed(*range(1000)), removed(*range(1000), medium="CPU"))).events
    assert all(isinstance(event, Removed) and len(event.hashes) <= MAX_BLOCKS for event in events)
    for half in (events[: len(events) // 2], events[len(events) // 2 :]):
        assert [n for event in half if isinstance(event, Removed) for n in event.hashes] == [*range(1000)]
        assert len({event.tier for event in half if isinstance(event, Removed)}) == 1


def test_blocks_without_tokens_come_in_parts() -> None:
    events = decode_batch(batch(stored(range(1000), None, [], 0, medium="CPU"))).events
    assert [len(event.hashes) for event in events if isinstance(event, Stored)] == [256, 256, 256, 232]


def test_large_blocks_come_in_parts_of_so_many_tokens() -> None:
    size = MAX_TOKENS_AT_ONCE // 2
    events = decode_batch(batch(stored(range(1, 6), 9, [7] * (5 * size), size))).events
    assert [(event.hashes, event.parent) for event in events if isinstance(event, Stored)] == [
        ((1, 2), 9), ((3, 4), 2), ((5,), 4)
    ]  # fmt: skip


def test_ids_of_images_may_be_negative() -> None:
    (event,) = decode_batch(batch(stored([1], None, [-1, 2, 2**63 - 1], 3))).events
    assert isinstance(event, Stored)
    assert event.tokens is not None
    assert event.tokens.tolist() == [2**64 - 1, 2, 2**63 - 1]
    assert decode_batch(batch(stored([1], None, [-1, 2**64 - 1], 2))).malformed == 1


def test_a_string_may_be_written_in_any_way() -> None:
    """A block's identity is compared with what we make of a salt, not with the engine's bytes."""
    long_form = b"\x91\xd9\x01s"
    keys = [msgspec.Raw(long_form), None]
    (event,) = decode_batch(batch(stored([1, 2], None, range(4), 2, extra_keys=keys))).events
    assert isinstance(event, Stored)
    assert event.extras == (pack(["s"]), b"")


def held_by_masks(index: BlockIndex) -> int:
    return sum(map(len, index._fast)) + sum(map(len, index._slow))


def filled(world: World, blocks: int) -> None:
    for start in range(0, blocks, MAX_BLOCKS):
        numbers = range(start, start + MAX_BLOCKS)
        world.tell(stored(numbers, None, range(start * SIZE, (start + MAX_BLOCKS) * SIZE), SIZE))


@pytest.mark.parametrize("by", ["flush", "junk", "restart", "leave"])
def test_all_that_was_held_is_void_at_once_and_swept_in_steps(by: str) -> None:
    world = World(limit=100_000)
    other = world.join("b")[0]
    filled(world, 12 * MAX_BLOCKS)
    world.tell(stored([10**6], None, PROMPT[:SIZE], SIZE))
    assert world.matched(PROMPT) == {"a": SIZE}
    index = world.view.index
    before = held_by_masks(index)
    if by == "leave":
        world.view.forget("a")
    else:
        message = {"flush": batch(CLEARED), "junk": b"junk", "restart": batch(["x"])}[by]
        world.tracker.sequence.live(0 if by == "restart" else world.number, message)
        while world.tracker.slot.blocks:
            assert world.tracker.step()
    assert world.view.cached_tokens(key_of(world)) == {}
    steps = 0
    while held_by_masks(index):
        assert before - held_by_masks(index) <= SWEPT
        before = held_by_masks(index)
        assert other.step(), "whoever is at work sweeps for all"
        steps += 1
    assert steps >= 4
    settle(other)
    assert not index._void


def key_of(world: World) -> Any:
    return world.view.keys(PROMPT)


def test_blocks_stored_again_during_a_sweep_stay() -> None:
    world = World(limit=100_000)
    filled(world, 12 * MAX_BLOCKS)
    world.tell(stored([10**6], None, PROMPT[:SIZE], SIZE))
    message = batch(CLEARED, stored([10**6], None, PROMPT[:SIZE], SIZE))
    world.tracker.sequence.live(world.number, message)
    while not world.matched(PROMPT):
        assert world.tracker.step()
    assert world.view.index._void, "not all is swept yet"
    settle(world.tracker)
    assert world.matched(PROMPT) == {"a": SIZE}
    assert held_by_masks(world.view.index) == len(world.tracker.slot.blocks) == 1


def test_flushes_in_a_row_take_no_more_numbers_than_are_in_use() -> None:
    """Masks are as wide as the highest number."""
    world = World()
    for _ in range(100):
        world.tell(stored([10**6], None, PROMPT[:SIZE], SIZE), CLEARED, CLEARED)
    assert world.tracker.slot.number < 4


def test_dropping_old_blocks_costs_as_much_as_storing() -> None:
    """Also when very many were dropped before: a dictionary remembers where they stood."""
    limit = 256 * MAX_BLOCKS
    world = World(limit=limit)
    (event,) = decode_batch(batch(stored(range(MAX_BLOCKS), None, range(MAX_BLOCKS * SIZE), SIZE))).events
    assert isinstance(event, Stored)

    def seconds(first: int, end: int) -> float:
        """Return how long storing takes, a block."""
        spent = 0.0
        for number in range(first, end, MAX_BLOCKS):
            numbers = tuple(range(number, number + MAX_BLOCKS))
            numbered = replace(event, hashes=numbers, adapter=str(number))
            began = time.thread_time()
            world.view.index.store(world.tracker.slot, numbered)
            spent += time.thread_time() - began
        return spent / (end - first)

    free = seconds(0, limit)
    seconds(limit, 7 * limit // 4)
    assert seconds(7 * limit // 4, 2 * limit) < 5 * free
    assert len(world.tracker.slot.blocks) <= limit


def test_a_lower_limit_is_reached_in_steps() -> None:
    world = World(limit=100_000)
    filled(world, 12 * MAX_BLOCKS)
    world.view.index.limit = 10
    for number in range(20):
        before = len(world.tracker.slot.blocks)
        world.tell(stored([10_000 + number], None, [number] * SIZE, SIZE))
        assert before - len(world.tracker.slot.blocks) <= SWEPT
    assert len(world.tracker.slot.blocks) == 10


def test_a_fault_that_was_not_foreseen_costs_its_message_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is held is not all that is held any more."""
    world = World()
    world.tell(stored([1], None, PROMPT[:SIZE], SIZE))
    assert world.view.freshness("a") is Freshness.WHOLE

    def store(*_: Any) -> Any:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(world.view.index, "store", store)
        world.tell(stored([2], 1, PROMPT[SIZE : 2 * SIZE], SIZE))
    assert world.tracker.counts["failed"] == 1
    assert world.tracker.failure.startswith("MemoryError at ")
    assert world.view.freshness("a") is Freshness.PARTIAL
    assert world.matched(PROMPT) == {}
    world.tell(stored([3], None, PROMPT[:SIZE], SIZE))
    assert world.matched(PROMPT) == {"a": SIZE}


@pytest.mark.parametrize("size", [True, 1.0, "1", None, -1])
def test_a_block_size_that_is_none_is_malformed(size: Any) -> None:
    raw_event = stored([1, 2], None, [1, 2], 1) | {"block_size": size}
    assert decode_batch(batch(raw_event)).malformed == 1
    assert next(events_of(batch(raw_event))) is Fault.MALFORMED


def test_what_is_expected_of_many_ranks_is_one_look_up_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    world, ranks, blocks = World(limit=10_000), 64, 128
    trackers = world.join("b", ranks=ranks)
    tokens = list(range(blocks * SIZE + 1))
    for tracker in trackers:
        tracker.sequence.live(0, batch(stored([1], None, [9] * SIZE, SIZE)))
        settle(tracker)
    trackers[-1].sequence.live(1, batch(stored(range(2, 2 + blocks), None, tokens[:-1], SIZE)))
    settle(trackers[-1])
    looked: list[int] = []
    holders = world.view.index.holders
    monkeypatch.setattr(world.view.index, "holders", lambda key: looked.append(key) or holders(key))
    keys = world.view.keys(tokens)
    assert keys is not None
    world.view.expect("b", keys)
    assert len(looked) == blocks
    assert not world.view._endpoints["b"].expected
