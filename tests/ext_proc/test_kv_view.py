"""Whose word counts, and what routing gets of it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from ext_proc.kv.lookup import FRESHNESS_SECONDS, KvLookup, KvPrompt, PromptTokens, shape_of
from ext_proc.kv.view import MAX_EXPECTED, MAX_SHAPES, MAX_UNSEEN, MOST_UNSEEN, UNSEEN_SECONDS, Freshness
from ext_proc.prompt.decode import Prompt
from ext_proc.prompt.envelope import Envelope
from tests.ext_proc.kv_worlds import CLEARED, World, batch, settle, stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = 16
PROMPT = list(range(100, 100 + 10 * SIZE + 1))


def keys(world: World, tokens: list[int]) -> NDArray[np.uint64]:
    made = world.view.keys(tokens)
    assert made is not None
    return made


class Reader:
    """Reads a body that is a JSON list of ids; what it is told to leave out is not known."""

    def __init__(self) -> None:
        self.known: int | None = None

    def read(self, envelope: Envelope) -> PromptTokens | None:
        ids = json.loads(bytes(envelope.prompt))
        if not ids:
            return None
        known = ids if self.known is None else ids[: self.known]
        return PromptTokens(np.array(known, dtype=np.uint64), len(known) == len(ids), len(ids))


class Asking(World):
    """A world with a lookup over one pool of `a`, `b` and `c`; `c` tells nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.other = self.join("b")[0]
        self.reader = Reader()
        self.lookup = KvLookup(self.view, self.clock, 4096)
        self.lookup.set_pool("p", ["a", "b"], self.reader)

    def ask(self, tokens: list[int], model: str = "m", **more: Any) -> KvPrompt:
        prompt = self.locate("p", model, tokens, **more)
        assert prompt is not None
        return prompt

    def locate(
        self, pool: str, model: str, tokens: list[int], *, complete: bool = True, **more: str
    ) -> KvPrompt | None:
        prompt = Prompt(model, more.get("salt", ""), b"text", complete, more.get("adapter", ""))
        envelope = Envelope(prompt=msgspec.Raw(json.dumps(tokens).encode()))
        return self.lookup.locate(pool, model, prompt, envelope)

    def later(self) -> None:
        self.clock.now += FRESHNESS_SECONDS


def hold(world: World, blocks: int, first: int = 1) -> None:
    numbers = range(first, first + blocks)
    world.tell(stored(numbers, None, PROMPT[: blocks * SIZE], SIZE))


def traced(world: World, token: int, shape: int = 0) -> None:
    """Send a prompt to `a` whose blocks appear."""
    world.view.expect("a", keys(world, [token] * 33), shape)
    world.tell(stored([token], None, [token] * SIZE, SIZE))


def test_silence_alone_is_no_fault() -> None:
    world = World()
    hold(world, 1)
    world.clock.now += 100 * UNSEEN_SECONDS
    assert world.view.freshness("a") is Freshness.WHOLE


def test_prompts_without_trace_make_an_endpoint_stale() -> None:
    """Events have stopped, or the engine's tokens are others than ours."""
    world = World()
    hold(world, 1)
    for number in range(MAX_UNSEEN):
        assert world.view.freshness("a") is Freshness.WHOLE
        world.view.expect("a", keys(world, [number] * 33))
        world.clock.now += UNSEEN_SECONDS
    assert world.view.freshness("a") is Freshness.STALE
    traced(world, 77)
    assert world.view.freshness("a") is Freshness.WHOLE


def test_one_shape_without_trace_leaves_others_fresh() -> None:
    """As of tools that the engine's template renders in another way: other requests are looked up."""
    world = Asking()
    hold(world, 5)
    plain, odd = world.ask(PROMPT), replace(world.ask(PROMPT), shape=7)
    traced(world, 77, plain.shape)
    for number in range(3 * MAX_UNSEEN):
        world.view.expect("a", keys(world, [number] * 33), odd.shape)
    world.clock.now += UNSEEN_SECONDS
    assert world.view.freshness("a") is Freshness.WHOLE
    assert world.view.status("a")["shapes_without_trace"] == 1
    assert world.lookup.merged(plain, {"a": 9}, 20) == {"a": 10}
    assert world.lookup.merged(odd, {"a": 9}, 20) == {"a": 9}, "our own index alone"
    for number in range(100, 100 + MOST_UNSEEN):
        world.view.expect("a", keys(world, [number] * 33), odd.shape)
    world.clock.now += UNSEEN_SECONDS
    assert world.view.judge("a").stale_by == "no_trace", "nothing has left a trace for long"
    traced(world, 78, odd.shape)
    world.later()
    assert world.lookup.merged(odd, {"a": 9}, 20) == {"a": 10}


def test_shapes_of_bodies_differ() -> None:
    bodies = [
        '{"messages": [{"role": "user", "content": "x"}]}',
        '{"messages": [{"role": "user", "content": "x"}], "tools": []}',
        '{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}',
        '{"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]}',
        '{"prompt": "x"}',
    ]
    envelopes = [msgspec.json.decode(body, type=Envelope) for body in bodies]
    assert len({shape_of(envelope) for envelope in envelopes}) == len(bodies)
    again = msgspec.json.decode(bodies[0].replace("x", "y") + " ", type=Envelope)
    assert shape_of(again) == shape_of(envelopes[0])


def test_shapes_that_are_judged_are_bounded() -> None:
    world = World()
    hold(world, 1)
    for shape in range(3 * MAX_SHAPES):
        world.view.expect("a", keys(world, [shape] * 33), shape)
        world.clock.now += UNSEEN_SECONDS
        world.view.freshness("a")
    assert len(world.view._endpoints["a"].untraced) == MAX_SHAPES


def test_prompts_whose_blocks_appear_keep_it_whole() -> None:
    world = World()
    hold(world, 1)
    for number in range(200, 200 + 3 * MAX_UNSEEN):
        world.view.expect("a", keys(world, [number] * 33))
        world.tell(stored([number], None, [number] * SIZE, SIZE))
        world.clock.now += UNSEEN_SECONDS
        assert world.view.freshness("a") is Freshness.WHOLE


def test_prompts_that_need_no_new_block_are_not_expected() -> None:
    world = World()
    hold(world, 2)
    for tokens in (PROMPT[: 2 * SIZE + 3], PROMPT[:5]):
        for _ in range(MAX_UNSEEN):
            world.view.expect("a", keys(world, tokens))
        world.clock.now += UNSEEN_SECONDS
    assert world.view.freshness("a") is Freshness.WHOLE


def test_one_prompt_sent_often_is_unseen_once() -> None:
    world = World()
    hold(world, 1)
    for _ in range(3 * MAX_UNSEEN):
        world.view.expect("a", keys(world, [5] * 33))
    world.clock.now += UNSEEN_SECONDS
    assert world.view.freshness("a") is Freshness.WHOLE


def test_what_is_expected_is_bounded() -> None:
    world = World()
    hold(world, 1)
    for number in range(3 * MAX_EXPECTED):
        world.view.expect("a", keys(world, [1000 + number] * 33))
    assert len(world.view._endpoints["a"].expected) == MAX_EXPECTED


@pytest.mark.parametrize("tokens", [[-1], [2**64], ["x"], [None], [[1], [2, 3]], [1.5, None]])
def test_ids_that_are_none_match_nothing(tokens: list[object]) -> None:
    assert World().view.keys(tokens) is None  # type: ignore[arg-type]


def test_whole_events_replace_the_estimate() -> None:
    """Both ways: what was thought warm and is not, and what was thought cold and is warm."""
    world = Asking()
    hold(world, 5)
    prompt = world.ask(PROMPT)
    assert world.lookup.merged(prompt, {"b": 7, "c": 3}, blocks=20) == {"a": 10, "c": 3}
    assert world.lookup.merged(prompt, {}, blocks=20) == {"a": 10}
    assert world.lookup.merged(prompt, {"a": 20}, blocks=20) == {"a": 10}


def test_larger_of_partial_events_and_estimate_counts() -> None:
    world = Asking()
    world.other.sequence.disconnect()
    world.other.connect()
    world.other.sequence.replay_from = None
    world.other.sequence.live(50, batch(stored(range(1, 6), None, PROMPT[: 5 * SIZE], SIZE)))
    world.other.sequence.replay_failed()
    settle(world.other)
    assert world.view.freshness("b") is Freshness.PARTIAL
    prompt = world.ask(PROMPT)
    assert world.lookup.merged(prompt, {"b": 4}, blocks=20) == {"b": 10}
    assert world.lookup.merged(prompt, {"b": 14}, blocks=20) == {"b": 14}
    assert world.lookup.merged(prompt, {"a": 3, "b": 14}, blocks=20) == {"b": 14}


def test_stale_events_leave_the_estimate() -> None:
    world = Asking()
    hold(world, 5)
    world.tracker.disconnect()
    world.later()
    assert world.lookup.merged(world.ask(PROMPT), {"a": 2, "b": 4}, blocks=20) == {"a": 2}
    world.other.disconnect()
    world.later()
    estimate = {"a": 2, "b": 4}
    assert world.lookup.merged(world.ask(PROMPT), estimate, blocks=20) is estimate


def test_known_beginning_proves_shorter_matches_only() -> None:
    """Four blocks' tokens are known: who holds fewer is known, who holds these may hold more."""
    world = Asking()
    hold(world, 6)
    world.other.sequence.live(0, batch(stored([1, 2], None, PROMPT[: 2 * SIZE], SIZE)))
    settle(world.other)
    world.reader.known = 4 * SIZE + 3
    prompt = world.ask(PROMPT)
    assert world.lookup.merged(prompt, {"a": 12, "b": 12, "c": 1}, blocks=20) == {"a": 12, "b": 4, "c": 1}
    assert world.lookup.merged(prompt, {"a": 3}, blocks=20) == {"a": 8, "b": 4}


def test_beginning_below_a_block_proves_nothing() -> None:
    world = Asking()
    hold(world, 6)
    world.reader.known = SIZE - 1
    prompt = world.ask(PROMPT)
    assert world.lookup.merged(prompt, {"a": 12}, blocks=20) == {"a": 12}


def test_no_blocks_no_answer() -> None:
    world = Asking()
    hold(world, 6)
    assert world.lookup.merged(world.ask(PROMPT), {}, blocks=0) == {}


def test_endpoints_of_other_pools_are_left_out() -> None:
    world = Asking()
    hold(world, 6)
    world.lookup.set_pool("p", ["b"], world.reader)
    world.lookup.set_pool("q", ["a"], world.reader)
    assert world.lookup.merged(world.ask(PROMPT), {}, blocks=20) == {}
    prompt = world.locate("q", "m", PROMPT)
    assert prompt is not None
    assert world.lookup.merged(prompt, {}, blocks=20) == {"a": 12}
    world.lookup.keep_pools(["p"])
    assert world.locate("q", "m", [1]) is None


def test_what_cannot_be_known_is_not_asked() -> None:
    world = Asking()
    assert world.locate("p", "m", [1], complete=False) is None
    assert world.locate("none", "m", [1]) is None
    assert world.locate("p", "m", []) is None


def test_a_model_that_is_an_adapter_has_blocks_of_its_own() -> None:
    """VLLM takes an adapter's name for the model's; events tell which names are adapters'."""
    world = Asking()
    hold(world, 6)
    assert world.lookup.merged(world.ask(PROMPT, "l"), {}, 20) == {"a": 12}
    world.tell(stored([91], None, PROMPT[:SIZE], SIZE, lora_name="l"))
    assert world.lookup.merged(world.ask(PROMPT, "l"), {}, 20) == {"a": 2}
    assert world.lookup.merged(world.ask(PROMPT, "m"), {}, 20) == {"a": 12}
    assert world.lookup.merged(world.ask(PROMPT, "m", adapter="l"), {}, 20) == {"a": 2}
    assert world.lookup.merged(world.ask(PROMPT, "m", salt="s"), {}, 20) == {}


def test_what_was_sent_is_expected() -> None:
    world = Asking()
    hold(world, 1)
    for number in range(MAX_UNSEEN):
        world.view.expect("a", world.ask([number] * 40).keys)
    world.view.expect("elsewhere", world.ask([1] * 40).keys)
    world.clock.now += UNSEEN_SECONDS
    assert world.lookup.merged(world.ask(PROMPT), {"a": 9}, 20) == {"a": 9}


# Ranks.


def test_ranks_have_what_each_of_them_has_published() -> None:
    """Where picks choose the rank; a rank without events keeps the caller's own estimate."""
    world = Asking()
    _, world.tracker = world.join("d", ranks=2)
    world.lookup.set_pool("p", ["d"], world.reader)
    hold(world, 4)
    world.later()
    local = {"d#0": 7, "d#2": 6}
    assert world.lookup.merged(world.ask(PROMPT), local, 10, 3) == {"d#1": 4, "d#2": 6}
    assert world.lookup.merged(world.ask(PROMPT), {}, 10) == {"d": 2}


def test_a_rank_that_drops_its_cache_is_named() -> None:
    world = World()
    ranks: list[tuple[str, int]] = []
    world.view.on_emptied = lambda address, rank: ranks.append((address, rank))
    _, second = world.join("d", ranks=2)
    second.sequence.live(0, batch(CLEARED))
    settle(second)
    assert ranks == [("d", 1)]
