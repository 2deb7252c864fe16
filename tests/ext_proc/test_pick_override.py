"""An operator's weight binds picks: the share of an overridden endpoint follows it, whoever is warm."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ext_proc.pick import LoadColumns, Reason
from ext_proc.pick.candidates import Candidates, PoolShape
from ext_proc.pick.quota import CREDIT_SECONDS, MOST_CREDIT, Quota
from fleet.signals import SignalTable
from testing.signals import Signal, loads_of, table_of
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

LONG = "You are a helpful assistant. " * 200
ENDS = [f"10.0.0.{n}:80" for n in range(4)]


def override(made: World, weights: Mapping[str, int], overridden: Mapping[str, int] | None = None) -> None:
    """Publish weights of 1,000 but for these."""
    view = made.store.view
    assert view is not None
    told = dict.fromkeys(ENDS[: len(view.membership.addresses)], 1000) | dict(weights)
    by_hand = weights if overridden is None else overridden
    made.store.publish(replace(view, weights=told, overridden=frozenset(by_hand)))


def ask(
    made: World,
    text: str,
    seconds: float = 0.05,
    away: Collection[str] = (),
    trust: Mapping[str, float] | None = None,
) -> str:
    """One request that has ended before the next one comes."""
    made.clock.now += seconds
    view = made.store.view
    assert view is not None
    now = made.clock.now
    loads = loads_of(view_of(pool_of(), now=now).signals)
    for address in away:
        loads[address] = replace(loads[address], reachable=Signal(0.0, now, "x"))
    for address, ratio in (trust or {}).items():
        loads[address] = replace(loads[address], trust_ratio=Signal(ratio, now, "x"))
    made.store.publish(replace(view, signals=table_of(view.membership.addresses, loads)))
    pick = made.route(whole(chat(text)))
    token = made.director.started(pick.endpoints[0])
    made.director.finished(token)
    return pick.endpoints[0]


def shares(made: World, texts: list[str]) -> dict[str, float]:
    counts = Counter(ask(made, text) for text in texts)
    return {address: counts[address] / len(texts) for address in ENDS}


def conversations(count: int, turns: int) -> list[str]:
    """Turns of some conversations, mixed; each begins with the turns before it."""
    draw = random.Random(7)
    texts = {number: f"conversation {number} " * 100 for number in range(count)}
    asked: list[str] = []
    for _ in range(count * turns):
        number = draw.randrange(count)
        texts[number] += f" turn {len(texts[number])} " * 30
        asked.append(texts[number])
    return asked


def test_at_weight_1_nothing_goes_there_that_is_warm_there() -> None:
    """What a newcomer tried: six warm requests after an override."""
    made = World(view_of(pool_of()))
    home = ask(made, LONG)
    assert ask(made, LONG) == home
    override(made, {home: 1})
    later = [ask(made, LONG + f" {number}" * 100) for number in range(6)]
    assert home not in later
    assert len(set(later)) == 1, "the conversation has a new home"


def test_the_fallbacks_name_it_still() -> None:
    made = World(view_of(pool_of(count=2)))
    home = ask(made, LONG)
    override(made, {home: 1})
    pick = made.route(whole(chat(LONG)))
    assert pick.endpoints[-1] == home
    assert pick.reason is Reason.COLD


@pytest.mark.untraced
@pytest.mark.parametrize(("weight", "expected"), [(1, 0.0), (500, 0.5 / 3.5), (1000, 0.25), (3000, 0.5)])
@pytest.mark.parametrize("warm", [True, False])
def test_its_share_of_the_picks_is_its_share_of_the_weights(weight: int, expected: float, warm: bool) -> None:
    texts = conversations(16, 30) if warm else [f"prompt {number} " * 200 for number in range(480)]
    made = World(view_of(pool_of()))
    for text in texts[:64]:
        ask(made, text)
    override(made, {ENDS[0]: weight})
    assert shares(made, texts)[ENDS[0]] == pytest.approx(expected, abs=0.03)


def test_a_computed_weight_binds_no_pick() -> None:
    made = World(view_of(pool_of()))
    home = ask(made, LONG)
    override(made, {home: 1}, overridden={})
    assert [ask(made, LONG) for _ in range(6)] == [home] * 6


def test_when_it_ends_what_is_warm_there_goes_there_again() -> None:
    made = World(view_of(pool_of()))
    home = ask(made, LONG)
    override(made, {home: 1})
    assert ask(made, "anything") != home
    override(made, {})
    assert ask(made, LONG) == home


def test_weights_of_all_overridden_endpoints_share_all_picks() -> None:
    made = World(view_of(pool_of()))
    texts = [f"prompt {number} " * 200 for number in range(400)]
    override(made, {ENDS[0]: 100, ENDS[1]: 100, ENDS[2]: 400, ENDS[3]: 400})
    told = shares(made, texts)
    assert [told[address] for address in ENDS] == pytest.approx([0.1, 0.1, 0.4, 0.4], abs=0.03)


def test_the_only_one_that_may_be_picked_is_picked_at_any_weight() -> None:
    made = World(view_of(pool_of(count=1)))
    override(made, {ENDS[0]: 1})
    for number in range(5):
        assert made.route(whole(chat(f"{LONG} {number}"))).endpoints == (ENDS[0],)


def test_debt_from_the_absence_of_peers_is_bounded() -> None:
    """Of the next 1,000 picks after 1,000 alone it got none: shares counted those who were away."""
    made = World(view_of(pool_of()))
    override(made, {ENDS[0]: 1000})
    for number in range(300):
        assert ask(made, f"alone {number} " * 100, away=ENDS[1:]) == ENDS[0]
    texts = [f"together {number} " * 100 for number in range(200)]
    assert shares(made, texts)[ENDS[0]] == pytest.approx(0.25, abs=0.05)


def test_its_debt_is_bounded() -> None:
    made, rows = quota(1000.0, 1000.0), candidates(2)
    for _ in range(1000):
        made.note(rows, 0)
    left = 0
    while made.closed(rows.rows)[0]:
        made.note(rows, 1)
        left += 1
    assert left <= 2 * (MOST_CREDIT + 1)


@pytest.mark.parametrize("weight", [1, 1000])
@pytest.mark.parametrize("trust", [0.1, 0.9])
def test_trials_keep_to_the_weight(weight: int, trust: float) -> None:
    """All requests of a light load went to an endpoint that an operator had set to 1."""
    made = World(view_of(pool_of()))
    override(made, {ENDS[0]: weight})
    asked = [ask(made, f"prompt {n} " * 200, seconds=1.0, trust={ENDS[0]: trust}) for n in range(200)]
    assert asked.count(ENDS[0]) <= 200 * weight / (3000 + weight) + 1
    assert (ENDS[0] in asked) == (weight > 1)


# The account behind it.


def candidates(count: int) -> Candidates:
    pool = pool_of(count=count)
    shape, rows, none = PoolShape.of(pool), np.arange(count), np.zeros(0, np.intp)
    signals = SignalTable.unknown(shape.addresses)
    return Candidates.of(shape, LoadColumns.of(shape, signals, {}, {}), rows, none, none, none)


def quota(*weights: float, overridden: tuple[int, ...] = (0,)) -> Quota:
    made = Quota(len(weights))
    made.follow(np.isin(np.arange(len(weights)), overridden), np.array(weights))
    return made


def test_what_is_owed_is_bounded_and_makes_it_cheaper() -> None:
    made, rows = quota(1000.0, 1000.0), candidates(2)
    assert made.closed(rows.rows).tolist() == [True, False]
    for _ in range(1000):
        made.note(rows, 1)
    assert made.seconds(rows.rows).tolist() == [-CREDIT_SECONDS * (MOST_CREDIT - 0.5), 0.0]
    assert not made.closed(rows.rows).any()


def test_changed_override_begins_without_credit() -> None:
    made, rows, both = quota(1000.0, 1000.0), candidates(2), np.array([1000.0, 1000.0])
    for _ in range(4):
        made.note(rows, 1)
    before = made.seconds(rows.rows).tolist()
    made.follow(np.array([True, False]), both)
    assert made.seconds(rows.rows).tolist() == before
    made.follow(np.array([True, False]), np.array([999.0, 1000.0]))
    assert made.closed(rows.rows).tolist() == [True, False]
    made.follow(np.array([False, False]), both)
    assert not made.active


def test_who_stays_keeps_its_account() -> None:
    made, rows = quota(1000.0, 1000.0), candidates(2)
    for _ in range(8):
        made.note(rows, 1)
    moved = made.moved_to(np.array([-1, 0, 1]))
    moved.follow(np.array([False, True, False]), np.array([1000.0, 1000.0, 1000.0]))
    assert moved.seconds(np.arange(3)).tolist() == [0.0, made.seconds(rows.rows)[0], 0.0]


def test_weights_that_are_not_known_count_as_their_peers() -> None:
    made = quota(float("nan"), 500.0, 0.0, overridden=(0, 2))
    for _ in range(3):
        made.note(candidates(3), 1)
    # The weight 0 is none as well.
    assert made.seconds(slice(None))[[0, 2]] == pytest.approx([-CREDIT_SECONDS * 0.5] * 2)
