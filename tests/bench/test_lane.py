"""Ratios are taken within a round, and a figure that is missing meets no target."""

from __future__ import annotations

import json

import pytest

from bench.lane import SIZES, Cell, Figures, Turn, result_of, targets_of
from bench.lane_site import ALONE, BARE, LANE, chats
from bench.wrk import MARK, Load


def turn(p50_ms: float, service_us: float | None = None) -> Turn:
    return Turn(Load(1000, 1.0, p50_ms, 2 * p50_ms, 0, 0), 50.0, service_us)


def figures(connections: int, sides: dict[str, list[Turn]], size: str = "4kb") -> Figures:
    made = Figures()
    made.turns = {Cell(size, connections, side): turns for side, turns in sides.items()}
    return made


def test_cpu_is_compared_within_each_round() -> None:
    """The host was ten times slower in the second round, for both sides."""
    both = figures(
        8,
        {
            BARE: [turn(1, 400), turn(1, 4000), turn(1, 400)],
            LANE: [turn(1, 100), turn(1, 1000), turn(1, 80)],
        },
    )
    assert both.cpu_over_bare("4kb", 8, LANE) == 0.25


def test_latency_is_what_a_side_adds_to_envoy_alone() -> None:
    all_sides = figures(
        1, {ALONE: [turn(0.2), turn(0.4)], BARE: [turn(0.8), turn(1.6)], LANE: [turn(0.4), turn(0.8)]}
    )
    assert all_sides.added_ms("4kb", 1, LANE) == pytest.approx(0.3)
    assert all_sides.added_over_bare("4kb", 1, LANE) == pytest.approx(1 / 3)


def test_a_side_that_was_not_measured_meets_no_target() -> None:
    only_bare = figures(8, {BARE: [turn(1, 400)]})
    assert [target.name for target in targets_of(only_bare) if target.met] == []


def test_envoy_alone_has_no_service() -> None:
    (cell,) = result_of(figures(1, {ALONE: [turn(0.2)]}))["cells"]
    assert cell["service_us"] is None
    assert cell["envoy_us"] == 50.0


@pytest.mark.parametrize("size", ["4kb", "48kb"])
def test_bodies_have_their_size_and_one_mark(size: str) -> None:
    for body in chats(SIZES[size]):
        assert body.count(MARK) == 1
        assert abs(len(body) - SIZES[size]) < SIZES[size] / 8
        assert MARK in json.loads(body)["messages"][-1]["content"]
