"""Trust falls and grows at the speed that is promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xds_server.signals.passive.trust import FLOOR, HALF_OPEN_SECONDS, Trust

TICK = 0.25


class World:
    """One endpoint and a clock."""

    def __init__(self) -> None:
        self.trust = Trust()
        self.trust.remap_rows(np.array([-1]))
        self.now = 100.0

    def run(self, seconds: float, ok: float = 0.0, faults: float = 0.0, *, share: bool = False) -> float:
        """Let answers come at a rate for some seconds; with `share` their number follows trust."""
        expected = [0.0, 0.0]
        for _ in range(round(seconds / TICK)):
            self.now += TICK
            factor = max(float(self.trust.ratio[0]), 0.05) if share else 1.0
            expected[0] += ok * TICK * factor
            expected[1] += faults * TICK * factor
            came = [int(expected[0]), int(expected[1])]
            expected = [expected[0] - came[0], expected[1] - came[1]]
            self.trust.step(np.array([came[0]]), np.array([came[1]]), self.now)
        return float(self.trust.ratio[0])


@pytest.mark.parametrize("rate", [4, 20, 500])
def test_only_failing_engine_loses_trust_in_three_seconds(rate: Any) -> None:
    """Although what it gets falls with its trust."""
    world = World()
    world.run(5, ok=rate)
    assert world.run(3, faults=rate, share=True) <= 0.025


@pytest.mark.parametrize("trickle", [1.0, 2.0, 10.0])
def test_a_trickle_of_good_answers_brings_half_of_it_back(trickle: Any) -> None:
    """One a second takes five seconds; more take less."""
    world = World()
    world.run(10, faults=50)
    assert world.trust.ratio[0] == FLOOR
    assert world.run(5, ok=trickle) >= 0.5
    assert world.run(5, ok=trickle) == 1.0


def test_a_few_errors_among_many_answers_cost_nothing() -> None:
    """One in ten is the business of the error ratio."""
    world = World()
    assert world.run(20, ok=90, faults=10) == 1.0
    quiet = World()
    assert quiet.run(0.5, faults=4) > 0.5, "two faults may be anybody's"


def test_what_fails_for_the_most_part_stays_distrusted() -> None:
    """Good answers in between do not bring trust back."""
    world = World()
    assert world.run(20, ok=10, faults=40) < 0.05


def test_silence_opens_slowly() -> None:
    """Half open: without any answer trust returns over seconds, and the next faults end that."""
    world = World()
    world.run(10, faults=50)
    assert world.run(4) < 0.4
    assert world.run(3 * HALF_OPEN_SECONDS) > 0.9
    assert world.run(3, faults=4) <= 0.1


def test_the_fourth_good_answer_in_a_row_makes_trust_whole() -> None:
    """Whatever was before: the last tenth of distrust keeps an endpoint from being heard of again."""
    world = World()
    world.run(10, faults=50)
    for count in range(1, 5):
        world.trust.step(np.array([1]), np.array([0]), world.now)
        assert bool(world.trust.ratio[0] == 1.0) is (count == 4)
        assert world.trust.recovered.tolist() == [count == 4]
        world.now += 0.1
    world.trust.step(np.array([1]), np.array([0]), world.now)
    assert world.trust.recovered.tolist() == [False], "told once"


def test_after_two_good_answers_trust_grows_with_time_alone() -> None:
    """At light load no more may come."""
    world = World()
    world.run(10, faults=50)
    world.trust.step(np.array([2]), np.array([0]), world.now)
    assert world.trust.ratio[0] < 0.5
    assert world.run(4) > 0.9


@pytest.mark.untraced
@pytest.mark.parametrize("load", [50, 20, 5, 2, 1])
def test_half_the_fair_share_is_back_in_five_seconds(load: Any) -> None:
    """Of four endpoints by weights, whatever comes by chance; mostly within three."""
    back = sorted(_seconds_until_half(load, seed) for seed in range(100))
    assert back[50] <= 3.0
    assert back[-1] <= 5.0


def _seconds_until_half(load: float, seed: int) -> float:
    draw, trust, now, healed = np.random.default_rng(seed), Trust(), 0.0, 20.0
    trust.remap_rows(np.full(4, -1))
    while True:
        shares = trust.ratio / trust.ratio.sum()
        if now >= healed and shares[0] >= 1 / 8:
            return now - healed
        came = draw.multinomial(draw.poisson(load * TICK), shares)
        faults = came * (np.arange(4) == 0) * (now < healed)
        now += TICK
        trust.step(came - faults, faults, now)


def test_a_newcomer_is_trusted() -> None:
    """And rows follow their endpoints."""
    world = World()
    world.run(10, faults=50)
    world.trust.remap_rows(np.array([-1, 0]))
    assert world.trust.ratio.tolist() == [1.0, FLOOR]
