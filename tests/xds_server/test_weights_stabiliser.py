"""Stable shares: noise is not followed, a step settles, members come and go."""

from __future__ import annotations

from itertools import pairwise
from math import exp, log, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.settings import StabiliserSettings
from xds_server.weights.stabiliser import Stabiliser

TICK = 0.25
GRID = 0.026
"""Half a step of the grid on which shares are published by default, relative, and a little."""
DIRECT = StabiliserSettings(
    smoothing_seconds=0.0,
    dead_band_ratio=0.0,
    minimum_interval_seconds=0.0,
    floor_share=0.0,
    rise_ratio_per_second=1e12,
    most_fair_ratio=10_000.0,
    ratio_cap=10_000.0,
)


def test_the_first_shares_are_the_scores() -> None:
    shares = Stabiliser(StabiliserSettings()).step(["a", "b"], [3.0, 1.0], 100.0)
    assert shares is not None
    assert shares.tolist() == pytest.approx([0.75, 0.25], rel=GRID)


@pytest.mark.parametrize("seed", range(5))
def test_jitter_is_not_published(seed: int) -> None:
    """Scores that shake by 10 % for 5 minutes, read once a second, move nothing."""
    rng = np.random.default_rng(seed)
    steady = np.array([1.0, 2.0, 3.0, 4.0])
    stabiliser = Stabiliser(StabiliserSettings())
    assert stabiliser.step(list("abcd"), steady, 0.0) is not None
    for second in range(1, 300):
        scores = steady * rng.uniform(0.9, 1.1, 4)
        for tick in range(4):
            assert stabiliser.step(list("abcd"), scores, second + tick * TICK) is None


def test_noisy_first_reading_is_corrected_by_few_updates() -> None:
    rng = np.random.default_rng(20)
    steady = np.array([1.0, 2.0, 3.0, 4.0])
    stabiliser = Stabiliser(StabiliserSettings())
    shares = [
        shares
        for second in range(300)
        if (shares := stabiliser.step(list("abcd"), steady * rng.uniform(0.9, 1.1, 4), float(second)))
        is not None
    ]
    assert len(shares) <= 3
    assert shares[-1].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4], rel=0.2)


def test_step_settles_without_overshoot() -> None:
    stabiliser = Stabiliser(StabiliserSettings())
    stabiliser.step(["a", "b"], [1.0, 1.0], 0.0)
    published = [(0.0, 0.5)]
    for tick in range(1, 200):
        shares = stabiliser.step(["a", "b"], [4.0, 1.0], tick * TICK)
        if shares is not None:
            published.append((tick * TICK, float(shares[0])))
    assert all(later[0] - earlier[0] >= 1.0 for earlier, later in pairwise(published))
    assert all(later[1] > earlier[1] for earlier, later in pairwise(published))
    assert published[-1][1] == pytest.approx(0.8, rel=0.1)
    assert published[-1][1] <= 0.8 * (1 + GRID)
    assert [share for at, share in published if at < 15][-1] == pytest.approx(0.8, rel=0.1)
    assert 3 <= len(published) <= 12


def test_smoothing_is_by_time_not_by_tick() -> None:
    ends = []
    for tick in (0.1, 0.5, 3.0):
        stabiliser = Stabiliser(DIRECT.model_copy(update={"smoothing_seconds": 3.0}))
        stabiliser.step(["a", "b"], [1.0, 1.0], 0.0)
        shares = None
        for i in range(1, round(3.0 / tick) + 1):
            shares = stabiliser.step(["a", "b"], [1.0, 0.0], i * tick)
        assert shares is not None
        ends.append(float(shares[0]))
    assert ends == pytest.approx([0.5 + 0.5 * (1 - exp(-1))] * 3, rel=1e-3)


def test_the_dead_band_is_relative_to_what_was_published() -> None:
    stabiliser = Stabiliser(DIRECT.model_copy(update={"dead_band_ratio": 0.1}))
    stabiliser.step(["a", "b"], [0.9, 0.1], 0.0)
    assert stabiliser.step(["a", "b"], [0.905, 0.095], 1.0) is None
    assert stabiliser.step(["a", "b"], [0.909, 0.091], 2.0) is None
    assert stabiliser.step(["a", "b"], [0.911, 0.089], 3.0) is not None  # 11 % of the small one


def test_changed_membership_is_published_at_once() -> None:
    settings = StabiliserSettings(minimum_interval_seconds=60.0)
    stabiliser = Stabiliser(settings)
    stabiliser.step(["a", "b"], [3.0, 1.0], 0.0)
    joined = stabiliser.step(["a", "b", "new"], [3.0, 1.0, 100.0], 0.25)
    assert joined is not None
    assert joined[2] == pytest.approx(1 / 3, rel=GRID)  # neither the best nor the worst, whatever it reports
    assert joined[0] > joined[2] > joined[1]
    left = stabiliser.step(["new", "a"], [1.0, 1.0], 0.5)
    assert left is not None
    assert left.sum() == pytest.approx(1.0)
    assert stabiliser.step(["a", "new"], [1.0, 9.0], 0.75) is None  # the same members in another order


def test_the_last_leaves_and_others_come() -> None:
    stabiliser = Stabiliser(StabiliserSettings())
    stabiliser.step(["a"], [1.0], 0.0)
    gone = stabiliser.step([], [], 1.0)
    assert gone is not None
    assert gone.size == 0
    assert stabiliser.step([], [], 2.0) is None
    back = stabiliser.step(["b", "c"], [1.0, 3.0], 3.0)
    assert back is not None
    assert back.tolist() == pytest.approx([0.25, 0.75], rel=GRID)


def test_every_endpoint_keeps_the_floor() -> None:
    stabiliser = Stabiliser(DIRECT.model_copy(update={"floor_share": 0.2}))
    shares = stabiliser.step(list("abcd"), [0.0, 0.06, 0.62, 0.32], 0.0)
    assert shares is not None
    assert shares[0] == pytest.approx(0.05)
    assert shares[2] / shares[3] == pytest.approx(62 / 32)
    assert shares.sum() == pytest.approx(1.0)


@given(
    st.lists(st.lists(st.floats(width=64), min_size=5, max_size=5), min_size=1, max_size=8),
    st.floats(0, 1),
)
def test_whatever_the_scores_shares_are_sound(rounds: list[list[float]], floor: float) -> None:
    stabiliser = Stabiliser(
        StabiliserSettings(minimum_interval_seconds=0.0, dead_band_ratio=0.0, floor_share=floor)
    )
    for second, scores in enumerate(rounds):
        shares = stabiliser.step(list("abcde"), scores, float(second))
        if shares is not None:
            assert shares.sum() == pytest.approx(1.0)
            assert shares.min() >= floor / 5 - 1e-12


def test_one_bad_reading_leaves_no_trace() -> None:
    stabiliser = Stabiliser(DIRECT)
    stabiliser.step(["a", "b"], [1.0, 1.0], 0.0)
    stabiliser.step(["a", "b"], [nan, 1.0], 1.0)
    shares = stabiliser.step(["a", "b"], [3.0, 1.0], 2.0)
    assert shares is not None
    assert shares.tolist() == pytest.approx([0.75, 0.25])


def test_idle_endpoint_alone_with_a_score_is_equal() -> None:
    """The mean of the others is 0: no share of it, and no trace in later steps."""
    stabiliser, idle = Stabiliser(DIRECT), np.array([False, True])
    for scores in ([0.0, 0.01], [0.0, 0.0], [1.0, 3.0]):
        stabiliser.step(["a", "b"], scores, 0.0, idle=idle)
        assert stabiliser.shares.tolist() == [0.5, 0.5]
        assert np.isfinite(stabiliser.last_step().targets).all()
    stabiliser.step(["a", "b"], [3.0, 1.0], 1.0, idle=idle)
    assert stabiliser.shares.tolist() == pytest.approx([0.75, 0.25])


def test_a_clock_that_stands_still_or_jumps_is_no_fault() -> None:
    stabiliser = Stabiliser(DIRECT.model_copy(update={"smoothing_seconds": 3.0}))
    stabiliser.step(["a", "b"], [1.0, 1.0], 10.0)
    stabiliser.step(["a", "b"], [3.0, 1.0], 10.0)
    stabiliser.step(["a", "b"], [3.0, 1.0], 5.0)
    shares = stabiliser.step(["a", "b"], [3.0, 1.0], 1e9)
    assert shares is not None
    assert shares.tolist() == pytest.approx([0.75, 0.25])


def test_an_endpoint_that_is_well_again_is_not_taken_for_noise() -> None:
    """It fell to a sixth for long; an even share is more than twice that, so it is followed at once."""
    stabiliser = Stabiliser(StabiliserSettings(minimum_interval_seconds=0.0, dead_band_ratio=0.0))
    addresses = list("abcd")
    stabiliser.step(addresses, [1.0] * 4, 0.0)
    for tick in range(1, 49):
        stabiliser.step(addresses, [1 / 6, 1.0, 1.0, 1.0], tick * TICK)
    fallen = float(stabiliser.shares[0])
    assert fallen == pytest.approx(1 / 19, rel=0.2)
    ticks = 0
    while stabiliser.shares[0] < 0.125:
        ticks += 1
        stabiliser.step(addresses, [1.0] * 4, 12.0 + ticks * TICK)
    at_once = -3.0 * log((0.25 - 0.125) / (0.25 - fallen))
    assert ticks * TICK <= at_once + 2 * TICK
