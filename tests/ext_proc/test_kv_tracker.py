"""What is held follows from what was told: counts, parents, tiers, identity, limits."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.kv.blocks import BlockIndex, step_tokens
from ext_proc.kv.chain import MAX_TOKENS, Chain
from ext_proc.kv.events import MAX_BLOCKS, Removed, Stored
from ext_proc.kv.view import Freshness
from tests.ext_proc.kv_worlds import (
    CLEARED,
    World,
    answer,
    batch,
    decode_batch,
    recorded,
    removed,
    settle,
    stored,
)

SIZE = 16
PROMPT = list(range(100, 100 + 4 * SIZE + 1))
BLOCKS = [PROMPT[n * SIZE : (n + 1) * SIZE] for n in range(4)]


def chain(*blocks: list[int]) -> list[int]:
    return [token for block in blocks for token in block]


def test_prediction_equals_the_recorded_cached_tokens() -> None:
    """But right after a reset, which vLLM tells with the next batch only."""
    world = World()
    agreed, surprised, after_reset = 0, [], False
    for entry in recorded():
        if "payload" in entry:
            world.tracker.sequence.live(entry["seq"], entry["payload"])
            settle(world.tracker)
        elif "reset" in entry:
            after_reset = True
        elif "request" in entry:
            told = entry["request"]
            predicted = world.matched(told["tokens"], salt=told["salt"]).get("a", 0)
            if predicted == told["cached_tokens"]:
                agreed += 1
            else:
                surprised.append((after_reset, predicted, told["cached_tokens"]))
            after_reset = False
    assert agreed == 17
    assert surprised == [(True, 192, 0)]
    assert world.view.freshness("a") is Freshness.WHOLE


def test_recording_leaves_the_blocks_that_were_not_removed() -> None:
    world = World()
    counts: dict[int, int] = {}
    for entry in recorded():
        if "payload" not in entry:
            continue
        world.tracker.sequence.live(entry["seq"], entry["payload"])
        settle(world.tracker)
        for event in decode_batch(entry["payload"]).events:
            if isinstance(event, Stored):
                for number in event.hashes:
                    counts[number] = counts.get(number, 0) + 1
            elif isinstance(event, Removed):
                for number in event.hashes:
                    counts[number] -= 1
            else:
                counts.clear()
    assert set(world.tracker.slot.blocks) == {number for number, count in counts.items() if count}
    assert world.tracker.slot.orphans == world.tracker.slot.unknown_removals == 0


def test_a_prompt_is_held_as_far_as_its_blocks_are() -> None:
    world = World()
    world.tell(stored([1, 2], None, chain(*BLOCKS[:2]), SIZE))
    assert world.matched(PROMPT) == {"a": 2 * SIZE}
    world.tell(stored([3], 2, BLOCKS[2], SIZE))
    assert world.matched(PROMPT) == {"a": 3 * SIZE}
    assert world.matched(PROMPT[: 2 * SIZE + 5]) == {"a": 2 * SIZE}
    assert world.matched([1, *PROMPT]) == {}
    assert world.matched([]) == {}


def test_the_last_token_is_computed_in_any_case() -> None:
    """An engine needs it for the answer's first token, so a whole prompt is never found."""
    world = World()
    world.tell(stored([1, 2], None, chain(*BLOCKS[:2]), SIZE))
    assert world.matched(PROMPT[: 2 * SIZE]) == {"a": SIZE}


def test_blocks_behind_a_removed_one_do_not_count() -> None:
    world = World()
    world.tell(stored([1, 2, 3], None, chain(*BLOCKS[:3]), SIZE), removed(2))
    assert world.matched(PROMPT) == {"a": SIZE}
    world.tell(stored([2], 1, BLOCKS[1], SIZE))
    assert world.matched(PROMPT) == {"a": 3 * SIZE}


def test_what_was_stored_twice_is_removed_twice() -> None:
    world = World()
    world.tell(stored([1], None, BLOCKS[0], SIZE), stored([1], None, BLOCKS[0], SIZE), removed(1))
    assert world.matched(PROMPT) == {"a": SIZE}
    world.tell(removed(1), removed(1))
    assert world.matched(PROMPT) == {}
    assert world.tracker.slot.unknown_removals == 1
    assert world.tracker.slot.blocks == {}


def test_clearing_empties_all_and_makes_it_whole() -> None:
    world = World(replayable=False)
    world.tracker.sequence.live(5, batch(stored([1], None, BLOCKS[0], SIZE)))
    settle(world.tracker)
    assert world.view.freshness("a") is Freshness.PARTIAL
    world.number = 6
    world.tell(CLEARED)
    assert world.matched(PROMPT) == {}
    assert world.view.freshness("a") is Freshness.WHOLE


def test_blocks_without_predecessor_are_not_guessed() -> None:
    world = World()
    world.tell(stored([3], 2, BLOCKS[2], SIZE))
    assert world.matched(PROMPT) == {}
    assert world.tracker.slot.orphans == 1


def test_host_memory_counts_half() -> None:
    world = World()
    world.tell(stored([1, 2, 3, 4], None, chain(*BLOCKS), SIZE), stored([1, 2, 3], None, [], 0, medium="CPU"))
    world.tell(removed(2, 3, 4))
    assert world.matched(PROMPT) == {"a": SIZE + 2 * SIZE // 2}
    world.tell(removed(3, medium="CPU"))
    assert world.matched(PROMPT) == {"a": SIZE + SIZE // 2}
    world.tell(removed(1))
    assert world.matched(PROMPT) == {"a": 2 * SIZE // 2}
    world.tell(removed(1, 2, medium="CPU"))
    assert world.tracker.slot.blocks == {}


def test_slow_tier_with_tokens_counts_by_itself() -> None:
    world = World()
    world.tell(stored([9], None, [5] * SIZE, SIZE), stored([1], None, BLOCKS[0], SIZE, medium="DISK"))
    assert world.matched(PROMPT) == {"a": SIZE // 2}


def test_salts_and_adapters_keep_equal_tokens_apart() -> None:
    world = World()
    world.tell(stored([1, 2], None, chain(*BLOCKS[:2]), SIZE, extra_keys=[["s"], None]))
    assert world.matched(PROMPT) == {}
    assert world.matched(PROMPT, salt="t") == {}
    assert world.matched(PROMPT, salt="s") == {"a": 2 * SIZE}
    world.tell(stored([11], None, BLOCKS[0], SIZE, lora_name="l", extra_keys=[["l"]]))
    assert world.matched(PROMPT, adapter="l") == {"a": SIZE}
    assert world.matched(PROMPT, adapter="l", salt="s") == {}
    world.tell(stored([12], None, BLOCKS[0], SIZE, lora_name="l", extra_keys=[["l", "s"]]))
    assert world.matched(PROMPT, adapter="l", salt="s") == {"a": SIZE}
    assert world.view.index.adapters.has("l", {"a"})


def test_blocks_with_images_are_never_taken_for_text() -> None:
    world = World()
    world.tell(stored([1], None, BLOCKS[0], SIZE, extra_keys=[[["picture", 3]]]))
    assert world.matched(PROMPT) == {}


def test_one_set_of_keys_serves_all_block_sizes() -> None:
    world = World()
    other, small = world.join("b")[0], world.join("c")[0]
    world.tell(stored([1], None, PROMPT[:64], 64))
    other.sequence.live(0, batch(stored([1, 2], None, PROMPT[:32], 16)))
    small.sequence.live(0, batch(stored(range(1, 41), None, PROMPT[:40], 1)))
    settle(other)
    settle(small)
    # Blocks of one token are looked up at every 16th.
    assert world.matched(PROMPT) == {"a": 64, "b": 32, "c": 32}
    assert [step_tokens(size) for size in (1, 5, 16, 17, 128)] == [16, 20, 16, 17, 128]


def test_several_ranks_count_with_their_mean() -> None:
    """An engine chooses among its ranks by itself."""
    world = World()
    one, two = world.join("b", ranks=2)
    one.sequence.live(0, batch(stored([1, 2], None, chain(*BLOCKS[:2]), SIZE)))
    settle(one)
    assert world.matched(PROMPT) == {"b": SIZE}
    two.sequence.live(0, batch(stored([1, 2, 3, 4], None, chain(*BLOCKS), SIZE)))
    settle(two)
    assert world.matched(PROMPT) == {"b": 3 * SIZE}


def test_memory_is_bounded_and_what_was_dropped_makes_it_a_part() -> None:
    world = World(limit=10)
    for number in range(40):
        world.tell(stored([number], None, [number] * SIZE, SIZE))
    assert len(world.tracker.slot.blocks) == 10
    assert world.view.freshness("a") is Freshness.PARTIAL
    assert world.matched([39] * 17) == {"a": SIZE}
    assert world.matched([3] * 17) == {}
    assert sum(map(len, world.view.index._fast)) == 10


def test_malformed_news_void_what_was_deferred() -> None:
    """Whatever was told there, what is held is not known any more."""
    world = World()
    world.tell(stored([1], None, BLOCKS[0], SIZE))
    world.tell({"type": "BlockRemoved"}, stored([2], None, BLOCKS[1], SIZE))
    assert world.matched(PROMPT) == {}
    assert world.matched([*BLOCKS[1], 1]) == {"a": SIZE}
    assert world.view.freshness("a") is Freshness.PARTIAL
    assert world.tracker.counts["unreadable"] == 1


def test_a_restart_empties_what_was_deferred() -> None:
    world = World()
    world.tell(stored([1], None, BLOCKS[0], SIZE))
    world.tell(stored([2], 1, BLOCKS[1], SIZE))
    world.tracker.sequence.live(0, batch(stored([7], None, BLOCKS[2], SIZE)))
    settle(world.tracker)
    assert world.matched(PROMPT) == {}
    assert world.matched([*BLOCKS[2], 1]) == {"a": SIZE}


def test_prompts_beyond_all_models_have_no_keys() -> None:
    index = BlockIndex(10)
    slot = index.open("a")
    (event,) = decode_batch(batch(stored([1], None, range(SIZE), SIZE))).events
    assert isinstance(event, Stored)
    index.store(slot, event)
    slot.blocks[1].depth = MAX_TOKENS
    (event,) = decode_batch(batch(stored([2], 1, range(SIZE), SIZE))).events
    assert isinstance(event, Stored)
    assert index.store(slot, event) == []
    assert slot.orphans == 1
    with pytest.raises(ValueError, match="tokens"):
        Chain().terms(decode_tokens(range(2)), MAX_TOKENS - 1)


def decode_tokens(tokens: range) -> Any:
    (event,) = decode_batch(batch(stored([1], None, tokens, len(tokens)))).events
    assert isinstance(event, Stored)
    return event.tokens


def test_a_slot_that_is_given_back_leaves_nothing() -> None:
    world = World()
    world.tell(stored([1], None, BLOCKS[0], SIZE))
    world.view.forget("a")
    assert world.matched(PROMPT) == {}
    while world.view.index.sweep():
        pass
    tracker = world.join("b")[0]
    assert tracker.slot.number < 2, "numbers are given out again"
    assert world.matched(PROMPT) == {}
    assert not any(world.view.index._fast)
    assert world.view.index._sizes == {}


_STEPS = st.lists(
    st.tuples(st.sampled_from(["store", "copy", "remove", "clear"]), st.integers(0, 2), st.integers(0, 5)),
    max_size=50,
)


@given(_STEPS)
def test_the_index_equals_a_plain_model(steps: list[tuple[str, int, int]]) -> None:
    """Three prompts of six blocks; an engine stores, copies, evicts and clears as it likes."""
    world = World()
    prompts = [[1000 * p + t for t in range(6 * SIZE + 1)] for p in range(3)]
    copies: dict[tuple[int, int], int] = {}
    for kind, p, depth in steps:
        if kind in ("store", "copy"):
            if depth and not copies.get((p, depth - 1)):
                continue
            if kind == "copy" and not copies.get((p, depth)):
                continue
            copies[p, depth] = copies.get((p, depth), 0) + 1
            block = prompts[p][depth * SIZE : (depth + 1) * SIZE]
            world.tell(stored([10 * p + depth + 1], 10 * p + depth if depth else None, block, SIZE))
        elif kind == "remove" and copies.get((p, depth)):
            copies[p, depth] -= 1
            world.tell(removed(10 * p + depth + 1))
        elif kind == "clear":
            copies.clear()
            world.tell(CLEARED)
    for p, prompt in enumerate(prompts):
        held = 0
        while held < 6 and copies.get((p, held)):
            held += 1
        assert world.matched(prompt) == ({"a": held * SIZE} if held else {})


def test_events_are_applied_in_small_steps() -> None:
    """No step does more than some hundred blocks, so that picks are never kept waiting."""
    world = World(limit=10_000)
    count = 2000
    world.tracker.sequence.live(0, batch(stored(range(1, count + 1), None, range(count * 16), 16)))
    before = 0
    while before < count:
        assert not world.tracker.settled
        assert world.tracker.step()
        assert len(world.tracker.slot.blocks) - before <= MAX_BLOCKS
        before = len(world.tracker.slot.blocks)
    settle(world.tracker)
    assert world.tracker.settled


def test_an_interrupted_endpoint_is_stale_until_it_has_caught_up() -> None:
    world = World()
    first = batch(stored([1], None, BLOCKS[0], SIZE))
    world.tell(stored([1], None, BLOCKS[0], SIZE))
    world.tracker.disconnect()
    assert world.view.freshness("a") is Freshness.STALE
    assert world.matched(PROMPT) == {}
    world.tracker.connect()
    assert world.view.freshness("a") is Freshness.STALE
    answer(world.tracker, (0, first), (1, batch(stored([2], 1, BLOCKS[1], SIZE))))
    assert world.matched(PROMPT) == {"a": 2 * SIZE}
    assert world.view.freshness("a") is Freshness.WHOLE
