"""What was refused is not warm there: blocks are noted with the pick and taken back with the refusal."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ext_proc.director.sent import (
    AVOIDED_SECONDS,
    KEPT_SECONDS,
    MOST_BLOCKS,
    MOST_PROMPTS,
    MOST_REFUSED,
    RecentRefusals,
    SentPrompt,
    SentPrompts,
)
from ext_proc.pick import PickResult, Reason
from fleet.store import Missed
from testing.signals import Signal, loads_of, table_of
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

LONG = "You are a helpful assistant. " * 200
ENDS = [f"10.0.0.{n}:80" for n in range(4)]


def world(count: int = 4, **pick: Any) -> World:
    return World(view_of(pool_of(count=count)), ext_proc={"pick": pick})


def ask(made: World, text: str, **more: Any) -> PickResult:
    return made.route(whole(chat(text), **more))


def refuse(made: World, pick: PickResult, served: str = "") -> None:
    made.director.missed(miss_of(pick, served))


def miss_of(pick: PickResult, served: str = "") -> Missed:
    return Missed(pick.prompt, pick.endpoints[0], served, pick.serial, pick.request)


def test_refused_prompt_is_not_warm_and_goes_elsewhere() -> None:
    made = world()
    first = ask(made, LONG)
    refuse(made, first)
    assert made.director.warmth.index.block_count(first.endpoints[0]) == 0
    again = ask(made, LONG)
    assert again.reason is Reason.COLD
    assert again.endpoints[0] != first.endpoints[0]
    refuse(made, again)
    third = ask(made, LONG)
    assert third.endpoints[0] not in {first.endpoints[0], again.endpoints[0]}


def test_the_next_turn_goes_where_the_repeat_was_answered() -> None:
    made = world()
    refuse(made, ask(made, LONG))
    again = ask(made, LONG)
    turn = ask(made, LONG + " and more " * 100)
    assert (turn.endpoints[0], turn.reason) == (again.endpoints[0], Reason.WARM)


def test_a_burst_goes_together_until_it_is_refused() -> None:
    """All of it counts as warm from the first pick on, and nothing of it once all of it was refused."""
    made = world()
    burst = [ask(made, LONG + f" question {number} " * 60) for number in range(3)]
    assert len({pick.endpoints[0] for pick in burst}) == 1
    home = burst[0].endpoints[0]
    for left, pick in zip(range(2, -1, -1), burst, strict=True):
        refuse(made, pick)
        assert (made.director.warmth.index.block_count(home) > 0) == (left > 0)


@pytest.mark.parametrize("order", ["before", "between", "after"])
def test_what_another_request_shares_stays(order: str) -> None:
    """One refusal does not take back what the endpoint has computed for others, whoever came first."""
    made = world()
    texts = [LONG, LONG + " one " * 200, LONG + " other " * 200]
    refused = {"before": [1, 2], "between": [0, 2], "after": [0, 1]}[order]
    picks = [ask(made, text) for text in texts]
    home = picks[0].endpoints[0]
    for number in refused:
        refuse(made, picks[number])
    good = next(number for number in range(3) if number not in refused)
    pick = ask(made, texts[good])
    assert (pick.endpoints[0], pick.matched_share) == (home, 1.0)
    fresh = world()
    ask(fresh, texts[good])
    assert made.director.warmth.index.block_count(home) == fresh.director.warmth.index.block_count(home)


def test_what_was_warm_before_stays_warm() -> None:
    made = world()
    home = ask(made, LONG).endpoints[0]
    block_count = made.director.warmth.index.block_count(home)
    made.clock.now += 2 * KEPT_SECONDS
    made.store.publish(view_of(pool_of(), now=made.clock.now))
    again = ask(made, LONG)
    assert again.endpoints[0] == home
    refuse(made, again)
    assert made.director.warmth.index.block_count(home) == block_count


def test_a_prompt_larger_than_the_endpoint_is_taken_back_as_well() -> None:
    made = world()
    for address in ENDS:
        made.director.warmth.index.resize(address, 5)
    pick = ask(made, LONG)
    refuse(made, pick)
    assert made.director.warmth.index.block_count(pick.endpoints[0]) == 0


def test_where_all_have_refused_somebody_is_picked_all_the_same() -> None:
    made = world(count=2)
    for _ in range(4):
        pick = ask(made, LONG)
        assert len(pick.endpoints) == 2
        refuse(made, pick)


def test_refusal_diverts_only_its_prompt_for_seconds() -> None:
    made = world()

    def endpoints_of_cold_repeats() -> set[str]:
        chosen = set()
        for _ in range(12):
            chosen.add(endpoint := ask(made, LONG).endpoints[0])
            made.director.warmth.forget(endpoint)
        return chosen

    first = ask(made, LONG)
    refuse(made, first)
    made.clock.now += AVOIDED_SECONDS / 2
    others = {ask(made, f"another {number}").endpoints[0] for number in range(40)}
    assert first.endpoints[0] in others
    assert first.endpoints[0] not in endpoints_of_cold_repeats()
    made.clock.now += AVOIDED_SECONDS
    made.store.publish(view_of(pool_of(), now=made.clock.now))
    assert first.endpoints[0] in endpoints_of_cold_repeats()


def test_another_worker_avoids_it_too() -> None:
    """Which has not seen the prompt: rendezvous hashing would lead it to the same endpoint."""
    one, other = world(), world()
    pick = ask(one, LONG)
    other.director.missed(miss_of(pick))
    assert ask(other, LONG).endpoints[0] != pick.endpoints[0]


def test_what_another_worker_has_shared_is_taken_back_as_well() -> None:
    one, other = world(), world()
    ask(other, "anything")
    one.director.warmth.on_added = other.director.take_remote
    pick = ask(one, LONG)
    assert other.director.warmth.index.block_count(pick.endpoints[0])
    other.director.missed(miss_of(pick))
    assert not other.director.warmth.index.block_count(pick.endpoints[0])


def test_who_answered_in_its_place_is_warm_instead() -> None:
    made = world()
    pick = ask(made, LONG, headers={"x-session-id": "s1"})
    other = next(address for address in ENDS if address != pick.endpoints[0])
    refuse(made, pick, served=other)
    assert made.director.warmth.index.block_count(pick.endpoints[0]) == 0
    again = ask(made, LONG)
    assert (again.endpoints[0], again.matched_share) == (other, 1.0)
    assert ask(made, "short", headers={"x-session-id": "s1"}).endpoints[0] == other


def test_a_session_does_not_follow_a_refusal() -> None:
    made = world()
    headers = {"x-session-id": "s1"}
    home = ask(made, "hello", headers=headers).endpoints[0]
    for _ in range(3):
        made.director.pools.note_in_flight(home)
    for _ in range(200):
        made.director.traffic.started(home)
    made.director.pools.note_in_flight(home)
    moved = ask(made, "a question", headers=headers)
    assert moved.endpoints[0] != home
    refuse(made, moved)
    assert (
        made.director.sessions.endpoint(next(iter(made.director.sessions._by_session)), made.clock.now)
        == home
    )


def test_a_first_turn_that_is_refused_leaves_no_session() -> None:
    made = world()
    refuse(made, ask(made, "hello", headers={"x-session-id": "s1"}))
    assert len(made.director.sessions) == 0


def test_a_leading_part_that_was_refused_is_not_remembered() -> None:
    made = world()
    first = ask(made, LONG)
    refuse(made, first)
    second = ask(made, LONG)
    refuse(made, second)
    for address in ENDS:
        made.director.warmth.index.resize(address, 0)
        made.director.warmth.index.resize(address, 1000)
    assert not any(made.director.warmth.leading._parts.values())


def test_without_an_access_log_nothing_is_kept() -> None:
    made = World(view_of(pool_of()), signals={"access_log": False})
    for number in range(10):
        ask(made, LONG + f"{number}" * 2000)
    assert len(made.director._sent) == 0


def test_unknown_prompts_and_endpoints_change_nothing() -> None:
    made = world()
    pick = ask(made, LONG)
    block_count = made.director.warmth.index.block_count(pick.endpoints[0])
    other = ENDS[0] if pick.endpoints[0] != ENDS[0] else ENDS[1]
    for missed in (
        Missed(0, pick.endpoints[0], ""),
        Missed(pick.prompt, pick.endpoints[0], ""),
        Missed(pick.prompt, pick.endpoints[0], "", pick.serial + 1, pick.request),
        Missed(pick.prompt, "10.9.9.9:1", ENDS[0], pick.serial, pick.request),
        Missed(pick.prompt, other, "10.9.9.9:1", pick.serial, pick.request),
    ):
        made.director.missed(missed)
    assert made.director.warmth.index.block_count(pick.endpoints[0]) == block_count


def test_refusals_of_former_endpoints_are_ignored() -> None:
    made = world()
    pick = ask(made, LONG)
    made.store.publish(view_of(pool_of(count=1, base=9)))
    ask(made, "short")
    refuse(made, pick)
    made.store.publish(view_of(pool_of()))
    pick = ask(made, LONG)
    bigger = made.settings.ext_proc.pick.model_copy(update={"block_bytes": 1024})
    made.director.reconfigure(
        made.settings.model_copy(
            update={"ext_proc": made.settings.ext_proc.model_copy(update={"pick": bigger})}
        )
    )
    refuse(made, pick)
    assert ask(made, LONG).endpoints


def test_trial_after_a_refusal_waits() -> None:
    """Engines' 4xx are not tried again elsewhere: each trial may cost a client its answer."""
    made = world()
    interval = made.settings.ext_proc.pick.trial_interval_seconds

    def distrust(address: str) -> None:
        view = view_of(pool_of(), now=made.clock.now)
        loads = loads_of(view.signals)
        loads[address] = replace(loads[address], trust_ratio=Signal(0.1, made.clock.now, "x"))
        made.store.publish(replace(view, signals=table_of(view.membership.addresses, loads)))

    first = ask(made, LONG)
    distrust(first.endpoints[0])
    refuse(made, first)
    made.clock.now += 2.9 * interval
    distrust(first.endpoints[0])
    assert not made.decide(whole(chat("another prompt"))).trial
    made.clock.now += 0.2 * interval
    distrust(first.endpoints[0])
    assert not made.decide(whole(chat(LONG))).trial
    assert made.decide(whole(chat("another prompt"))).trial


def test_of_equal_prompts_the_refused_one_loses_its_session() -> None:
    made = world()
    first = ask(made, LONG, headers={"x-session-id": "first"})
    second = ask(made, LONG, headers={"x-session-id": "second"})
    assert first.endpoints[0] == second.endpoints[0]
    named = list(made.director.sessions._by_session)
    refuse(made, second)
    assert list(made.director.sessions._by_session) == named[:1]
    assert made.director.warmth.index.block_count(first.endpoints[0]), "the first one has been computed"


def test_what_is_told_twice_is_taken_back_once() -> None:
    """A gateway tells of a response, and the access log tells it again."""
    made = world()
    picks = [ask(made, LONG) for _ in range(3)]
    for _ in range(3):
        refuse(made, picks[0])
    assert made.director.warmth.index.block_count(picks[0].endpoints[0]) > 0
    refuse(made, picks[1])
    refuse(made, picks[2])
    assert made.director.warmth.index.block_count(picks[0].endpoints[0]) == 0


def test_refusal_of_another_worker_keeps_our_equal_prompt() -> None:
    ours, theirs = world(), world()
    pick = ask(ours, LONG, headers={"x-session-id": "s1"})
    ours.director.missed(miss_of(ask(theirs, LONG)))
    assert ours.director.warmth.index.block_count(pick.endpoints[0]) > 0
    assert len(ours.director.sessions) == 1


@pytest.mark.parametrize("bad", [{"max_tokens": 10**9}, {"messages": "Why?"}])
def test_bad_request_diverts_no_other_with_its_prefix(bad: dict[str, Any]) -> None:
    """Short questions fill no block of their own, and parameters none at all."""

    def asked(made: World, question: str, more: Mapping[str, Any]) -> PickResult:
        messages = [{"role": "system", "content": LONG}, {"role": "user", "content": question}]
        return made.route(whole(json.dumps({"model": "m", "messages": messages, **more}).encode()))

    worlds, homes = (world(), world()), []
    for made in worlds:
        asked(made, "Who?", {})
        question = str(bad.get("messages", "Who?"))
        more = {key: value for key, value in bad.items() if key != "messages"}
        pick = asked(made, question, more)
        if made is worlds[0]:
            refuse(made, pick)
        homes.append([asked(made, f"What about {number}?", {}).endpoints[0] for number in range(10)])
    assert homes[0] == homes[1], "as if nobody had refused anything"
    assert asked(worlds[0], question, more).endpoints[0] != pick.endpoints[0]


# The memory behind it.


def noted(serial: int, blocks: list[int], warm: int = 0, at: float = 0.0, address: str = "a:1") -> SentPrompt:
    return SentPrompt(address, blocks, warm, at, serial=serial)


def test_nothing_is_noted_where_nobody_tells() -> None:
    sent = SentPrompts(tracks=False)
    sent.note(noted(2, [1, 2]))
    assert sent.take_back(2, 2, ("a:1",)) is None


def test_sent_prompts_are_bounded_in_blocks_and_time() -> None:
    sent = SentPrompts(tracks=True)
    for number in range(1, 201):
        sent.note(noted(number, list(range(MOST_BLOCKS // 64))))
    kept = [number for number in range(1, 201) if sent.take_back(number, 0, ("a:1",))]
    assert kept == list(range(201 - 64, 201)), "those that were sent first went first"
    for _ in range(2 * MOST_PROMPTS):
        sent.note(SentPrompt("a:1", [1], 0, 0.0))
    assert len(sent) == MOST_PROMPTS
    sent.note(noted(1, [1], at=10.0))
    sent.note(noted(2, [1, 2], at=10.0 + KEPT_SECONDS))
    assert sent.take_back(1, 1, ("a:1",))
    sent.note(noted(3, [1, 2], at=11.0 + 2 * KEPT_SECONDS))
    assert len(sent) == 1
    assert sent.take_back(2, 2, ("a:1",)) is None


def test_of_equal_prompts_the_last_one_refused_takes_all_back() -> None:
    sent = SentPrompts(tracks=True)
    sent.note(noted(3, [1, 2, 3]))
    sent.note(noted(4, [1, 2, 3], warm=3))
    first, second = sent.take_back(3, 3, ("a:1",)), sent.take_back(4, 3, ("a:1",))
    assert first is not None
    assert second is not None
    assert (first[1], second[1]) == (3, 0)


def test_what_other_workers_have_sent_goes_by_its_last_block() -> None:
    sent = SentPrompts(tracks=True)
    for warm in (0, 3):
        sent.note(SentPrompt("a:1", [1, 2, 3], warm, 0.0), shared=True)
    assert sent.take_back(9, 3, ("b:1",)) is None
    assert [taken and taken[1] for taken in (sent.take_back(9, 3, ("a:1",)) for _ in range(3))] == [
        3,
        0,
        None,
    ]
    sent.note(noted(1, [7], at=2 * KEPT_SECONDS))
    assert not sent._shared


def test_a_take_back_looks_at_no_prompt_that_shares_nothing() -> None:
    """And of thousands that share all, at one: looking at all took milliseconds."""
    sent, looked = SentPrompts(tracks=True), 0

    class Watched(list[int]):
        def __getitem__(self, place: Any) -> Any:
            nonlocal looked
            looked += 1
            return super().__getitem__(place)

    for number in range(1, 4001):
        sent.note(noted(number, Watched([1, 2]), warm=2 if number > 1 else 0))
    looked = 0
    kept = [taken[1] for number in range(1, 4001) if (taken := sent.take_back(number, 2, ("a:1",)))]
    assert kept == [2] * 3999 + [0]
    assert looked < 40 * 4000
    assert not sent._heirs


def test_what_is_held_in_the_end_is_what_the_answered_ones_share() -> None:
    """Against the rule itself, for trees of prompts that are refused in any order."""
    draw = random.Random(3)
    for _ in range(300):
        chains = [[1]]
        for number in range(2, 8):
            parent = draw.choice(chains)
            shared = parent[: draw.randint(0, len(parent))]
            chains.append([*shared, 10 * number, 10 * number + 1])
        prompts = [draw.choice(chains) for _ in range(8)]
        sent, cached = SentPrompts(tracks=True), set()
        for serial, blocks in enumerate(prompts, 1):
            warm = next((n for n, block in enumerate(blocks) if block not in cached), len(blocks))
            cached |= set(blocks)
            sent.note(noted(serial, blocks, warm=warm))
        left = dict(enumerate(prompts, 1))
        for serial in draw.sample(range(1, 9), 8):
            taken = sent.take_back(serial, 0, ("a:1",))
            assert taken is not None
            cached -= set(taken[0].blocks[taken[1] :])
            del left[serial]
            assert cached == {block for blocks in left.values() for block in blocks}


def test_refusals_are_bounded_and_fade() -> None:
    refused = RecentRefusals()
    refused.note(1, "a:1", 0.0)
    refused.note(1, "b:1", 5.0)
    assert set(refused.by(1, 5.0)) == {"a:1", "b:1"}
    assert set(refused.by(1, AVOIDED_SECONDS)) == {"b:1"}
    assert not refused.by(1, 5.0 + AVOIDED_SECONDS)
    for prompt in range(2 * MOST_REFUSED):
        refused.note(prompt, "a:1", 0.0)
    assert not refused.by(0, 0.0)
    assert refused.by(2 * MOST_REFUSED - 1, 0.0)
