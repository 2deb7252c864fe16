"""What was refused is not warm there: blocks are noted with the pick and taken back with the refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ext_proc.pick import Pick, Reason
from ext_proc.sent import AVOIDED_SECONDS, KEPT_SECONDS, MOST_BLOCKS, MOST_REFUSED, Noted, Refused, Sent
from fleet.load import Signal
from fleet.store import Missed
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

LONG = "You are a helpful assistant. " * 200
ENDS = [f"10.0.0.{n}:80" for n in range(4)]


def world(count: int = 4, **pick: Any) -> World:
    return World(view_of(pool_of(count=count)), ext_proc={"pick": pick})


def ask(made: World, text: str, **more: Any) -> Pick:
    return made.router.route(whole(chat(text), **more))


def refuse(made: World, pick: Pick, served: str = "") -> None:
    made.router.missed(Missed(pick.prompt, pick.endpoints[0], served))


def test_what_was_refused_is_not_warm_there_and_its_repeat_goes_elsewhere() -> None:
    made = world()
    first = ask(made, LONG)
    refuse(made, first)
    assert made.router.warmth.held(first.endpoints[0]) == 0
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
        assert (made.router.warmth.held(home) > 0) == (left > 0)


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
    assert made.router.warmth.held(home) == fresh.router.warmth.held(home)


def test_what_was_warm_before_stays_warm() -> None:
    made = world()
    home = ask(made, LONG).endpoints[0]
    held = made.router.warmth.held(home)
    made.clock.now += 2 * KEPT_SECONDS
    made.store.publish(view_of(pool_of(), now=made.clock.now))
    again = ask(made, LONG)
    assert again.endpoints[0] == home
    refuse(made, again)
    assert made.router.warmth.held(home) == held


def test_a_prompt_larger_than_the_endpoint_is_taken_back_as_well() -> None:
    made = world()
    for address in ENDS:
        made.router.warmth.resize(address, 5)
    pick = ask(made, LONG)
    refuse(made, pick)
    assert made.router.warmth.held(pick.endpoints[0]) == 0


def test_where_all_have_refused_somebody_is_picked_all_the_same() -> None:
    made = world(count=2)
    for _ in range(4):
        pick = ask(made, LONG)
        assert len(pick.endpoints) == 2
        refuse(made, pick)


def test_an_endpoint_is_avoided_for_seconds_and_by_this_prompt_alone() -> None:
    made = world()

    def endpoints_of_cold_repeats() -> set[str]:
        chosen = set()
        for _ in range(12):
            chosen.add(endpoint := ask(made, LONG).endpoints[0])
            made.router.warmth.forget(endpoint)
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
    other.router.missed(Missed(pick.prompt, pick.endpoints[0], ""))
    assert ask(other, LONG).endpoints[0] != pick.endpoints[0]


def test_what_another_worker_has_shared_is_taken_back_as_well() -> None:
    one, other = world(), world()
    ask(other, "anything")
    one.router.warmth.on_added = other.router.take_remote
    pick = ask(one, LONG)
    assert other.router.warmth.held(pick.endpoints[0])
    other.router.missed(Missed(pick.prompt, pick.endpoints[0], ""))
    assert not other.router.warmth.held(pick.endpoints[0])


def test_who_answered_in_its_place_is_warm_instead() -> None:
    made = world()
    pick = ask(made, LONG, headers={"x-session-id": "s1"})
    other = next(address for address in ENDS if address != pick.endpoints[0])
    refuse(made, pick, served=other)
    assert made.router.warmth.held(pick.endpoints[0]) == 0
    again = ask(made, LONG)
    assert (again.endpoints[0], again.matched_share) == (other, 1.0)
    assert ask(made, "short", headers={"x-session-id": "s1"}).endpoints[0] == other


def test_a_session_does_not_follow_a_refusal() -> None:
    made = world()
    headers = {"x-session-id": "s1"}
    home = ask(made, "hello", headers=headers).endpoints[0]
    for _ in range(3):
        made.router.pools.note_in_flight(home)
    for _ in range(200):
        made.router.traffic.started(home)
    made.router.pools.note_in_flight(home)
    moved = ask(made, "a question", headers=headers)
    assert moved.endpoints[0] != home
    refuse(made, moved)
    assert made.router.sessions.endpoint(next(iter(made.router.sessions._held)), made.clock.now) == home


def test_a_first_turn_that_is_refused_leaves_no_session() -> None:
    made = world()
    refuse(made, ask(made, "hello", headers={"x-session-id": "s1"}))
    assert len(made.router.sessions) == 0


def test_a_leading_part_that_was_refused_is_not_remembered() -> None:
    made = world()
    first = ask(made, LONG)
    refuse(made, first)
    second = ask(made, LONG)
    refuse(made, second)
    for address in ENDS:
        made.router.warmth.resize(address, 0)
        made.router.warmth.resize(address, 1000)
    assert not any(part.numbers for part in made.router.warmth._leading._had.values())


def test_without_an_access_log_nothing_is_kept() -> None:
    made = World(view_of(pool_of()), signals={"access_log": False})
    for number in range(10):
        ask(made, LONG + f"{number}" * 2000)
    assert len(made.router._sent) == 0


def test_unknown_prompts_and_endpoints_change_nothing() -> None:
    made = world()
    pick = ask(made, LONG)
    held = made.router.warmth.held(pick.endpoints[0])
    for missed in (
        Missed(0, pick.endpoints[0], ""),
        Missed(7, pick.endpoints[0], ""),
        Missed(pick.prompt, "10.9.9.9:1", ENDS[0]),
        Missed(pick.prompt, ENDS[0] if pick.endpoints[0] != ENDS[0] else ENDS[1], "10.9.9.9:1"),
    ):
        made.router.missed(missed)
    assert made.router.warmth.held(pick.endpoints[0]) == held


def test_an_endpoint_that_left_and_blocks_of_another_size_upset_nothing() -> None:
    made = world()
    pick = ask(made, LONG)
    made.store.publish(view_of(pool_of(count=1, base=9)))
    ask(made, "short")
    refuse(made, pick)
    made.store.publish(view_of(pool_of()))
    pick = ask(made, LONG)
    bigger = made.settings.ext_proc.pick.model_copy(update={"block_bytes": 1024})
    made.router.reconfigure(
        made.settings.model_copy(
            update={"ext_proc": made.settings.ext_proc.model_copy(update={"pick": bigger})}
        )
    )
    refuse(made, pick)
    assert ask(made, LONG).endpoints


def test_who_has_just_refused_is_tried_later_and_with_another_prompt() -> None:
    """Engines' 4xx are not tried again elsewhere: each trial may cost a client its answer."""
    made = world()
    interval = made.settings.ext_proc.pick.trial_interval_seconds

    def distrust(address: str) -> None:
        view = view_of(pool_of(), now=made.clock.now)
        load = replace(view.loads[address], trust_ratio=Signal(0.1, made.clock.now, "x"))
        made.store.publish(replace(view, loads={**view.loads, address: load}))

    first = ask(made, LONG)
    distrust(first.endpoints[0])
    refuse(made, first)
    made.clock.now += 2.9 * interval
    distrust(first.endpoints[0])
    assert not ask(made, "another prompt").trial
    made.clock.now += 0.2 * interval
    distrust(first.endpoints[0])
    assert not ask(made, LONG).trial
    assert ask(made, "another prompt").trial


# The memory behind it.


def noted(prompt: int, blocks: list[int], warm: int = 0, at: float = 0.0, address: str = "a:1") -> Noted:
    return Noted(prompt, address, blocks, warm, at)


def test_nothing_is_noted_where_nobody_tells() -> None:
    sent = Sent(wanted=False)
    sent.note(noted(2, [1, 2]))
    assert sent.take_back(2, "a:1") is None


def test_prompts_that_wait_are_bounded_in_all_their_blocks_and_in_time() -> None:
    sent = Sent(wanted=True)
    for number in range(1, 201):
        sent.note(noted(number, list(range(5000))))
    kept = [number for number in range(1, 201) if sent.take_back(number, "a:1")]
    assert kept == list(range(201 - MOST_BLOCKS // 5000, 201)), "those that were sent first went first"
    sent.note(noted(1, [1], at=10.0))
    sent.note(noted(2, [1, 2], at=10.0 + KEPT_SECONDS))
    assert sent.take_back(1, "a:1")
    sent.note(noted(3, [1, 2], at=11.0 + 2 * KEPT_SECONDS))
    assert len(sent) == 1
    assert sent.take_back(2, "a:1") is None


def test_of_equal_prompts_the_last_one_refused_takes_all_back() -> None:
    sent = Sent(wanted=True)
    sent.note(noted(3, [1, 2, 3]))
    sent.note(noted(3, [1, 2, 3], warm=3))
    first, second = sent.take_back(3, "a:1"), sent.take_back(3, "a:1")
    assert first is not None
    assert second is not None
    assert (first[1], second[1]) == (3, 0)


def test_refusals_are_bounded_and_fade() -> None:
    refused = Refused()
    refused.note(1, "a:1", 0.0)
    refused.note(1, "b:1", 5.0)
    assert set(refused.by(1, 5.0)) == {"a:1", "b:1"}
    assert set(refused.by(1, AVOIDED_SECONDS)) == {"b:1"}
    assert not refused.by(1, 5.0 + AVOIDED_SECONDS)
    for prompt in range(2 * MOST_REFUSED):
        refused.note(prompt, "a:1", 0.0)
    assert not refused.by(0, 0.0)
    assert refused.by(2 * MOST_REFUSED - 1, 0.0)
