"""What counts as swing, overshoot and rest; targets; and a quick look at one real closed loop."""

from __future__ import annotations

from typing import Any

import pytest

from bench.stability import bursts, measure, targets_of
from bench.swing import Point, between, overshoots, settled_after, swing
from warmroute.demo import processes


def points(*shares: float) -> list[Point]:
    return [Point(float(at), (share, 1.0)) for at, share in enumerate(shares)]


def test_the_swing_is_that_of_the_engine_that_moved_most() -> None:
    assert swing(points(1.0, 0.7, 0.9)) == pytest.approx(0.3)
    assert swing([]) is None
    assert between(points(1, 2, 3), 1.0, 2.0) == points(1, 2, 3)[1:2]


def test_an_overshoot_is_on_the_far_side_and_beyond_the_band() -> None:
    assert overshoots([1.0, 0.7, 0.55, 0.5, 0.46], 1.0, 0.5) == 0
    assert overshoots([1.0, 0.44, 0.4, 0.52, 0.5], 1.0, 0.5) == 1
    assert overshoots([1.0, 0.44, 0.8, 0.44, 0.5], 1.0, 0.5) == 2
    assert overshoots([0.2, 0.5, 0.56, 0.5], 0.2, 0.5) == 1, "upwards too"


def test_settled_is_for_good() -> None:
    assert settled_after(points(1.0, 0.5, 0.8, 0.5, 0.52), 0, 0.5, 0.1) == 3.0
    assert settled_after(points(0.5, 0.5), 0, 0.5, 0.1) == 0.0
    assert settled_after(points(0.5, 0.9), 0, 0.5, 0.1) is None


def test_bursts_come_in_the_first_part_of_each_second() -> None:
    pressed = bursts(3, 20.0, 30.0)
    assert len(pressed) > 400
    assert all(turn.at_seconds % 1.0 <= 0.3 for turn in pressed)
    assert [turn.at_seconds for turn in pressed] == sorted(turn.at_seconds for turn in pressed)


GOOD: dict[str, dict[str, Any]] = {
    "jitter": {"seconds": 60.0, "updates": 6, "failures": 0},
    "step": {"share_before": 1.0, "share_settled": 0.5, "overshoots": 1, "failures": 0},
    "period": {"swing_growth": 1.5, "failures": 0},
    "zeros_one": {"most_over_fair": 2.0, "failures": 0},
}


@pytest.mark.parametrize(
    ("case", "bad", "unmet"),
    [
        ("jitter", {"updates": 7}, "jitter_updates"),
        ("step", {"overshoots": 2}, "step_overshoots"),
        ("step", {"overshoots": None}, "step_overshoots"),
        ("step", {"share_settled": 0.95}, "step_settled_over_before"),
        ("period", {"swing_growth": 1.6}, "period_swing_growth"),
        ("zeros_one", {"most_over_fair": 2.1}, "zeros_one_most_over_fair"),
        ("zeros_one", {"failures": 1}, "zeros_one_failures"),
    ],
)
def test_each_target_can_be_missed(case: str, bad: dict[str, Any], unmet: str) -> None:
    assert all(entry.met for entry in targets_of(GOOD))
    missed = [entry.name for entry in targets_of(GOOD | {case: GOOD[case] | bad}) if not entry.met]
    assert missed == [unmet]


@pytest.mark.slow
def test_a_short_run_with_engines_that_report_zeros() -> None:
    figures = processes.run(measure("zeros_one", "weights", 0.2, 7))
    assert figures["requests"] > 60
    assert figures["failures"] == 0
    assert figures["most_weight_over_fair"] is not None
