"""Figures of a struck engine count the right requests, and peers are compared as far as chance permits."""

from __future__ import annotations

from typing import Any

import pytest

from bench.peers import Cost, Costs, cost_targets, fault_targets, table
from bench.peers_faults import Struck
from bench.peers_site import OURS, PEERS
from warmroute.demo.stats import Outcome

STRUCK, SOUND = "h:0", "h:1"


def answered(at: float, served: str) -> Outcome:
    return Outcome(at, at + 0.1, status=200, served=served)


def lost(at: float) -> Outcome:
    return Outcome(at, at + 2.0, failure="timeout")


def test_lost_requests_begin_before_the_strike_too() -> None:
    struck = Struck(STRUCK, 10.0, 16.0, [lost(2.0), lost(9.0), lost(12.0), answered(13.0, SOUND)])
    assert struck.lost == 2


def test_the_engine_has_drawn_what_it_answers_late_or_never() -> None:
    outcomes = [answered(9.0, STRUCK), lost(11.0), answered(12.0, STRUCK), *[answered(14.0, SOUND)] * 2]
    assert Struck(STRUCK, 10.0, 16.0, outcomes).drawn == 0.5


def test_an_engine_is_back_at_half_of_its_own_share() -> None:
    """It had half of the requests; a quarter of them is enough, from the third second on."""
    before = [answered(at / 10, (STRUCK, SOUND)[at % 2]) for at in range(100)]
    away = [answered(16 + at / 10, SOUND) for at in range(30)]
    back = [answered(19 + at / 10, STRUCK if at % 4 == 0 else SOUND) for at in range(40)]
    assert Struck(STRUCK, 10.0, 16.0, [*before, *away]).again_seconds is None
    again = Struck(STRUCK, 10.0, 16.0, [*before, *away, *back]).again_seconds
    assert again is not None
    assert again > 2.0


def faults(ours: dict[str, Any], peers: dict[str, Any]) -> dict[str, Any]:
    usual = {
        "ties_busiest_share": 0.25,
        "refusing_lost": 0,
        "refusing_again_seconds": 1.0,
        "away_lost": 0,
        "away_again_seconds": 1.0,
        "frozen_lost": 0,
        "frozen_share": 0.1,
    }
    return {OURS: {**usual, **ours}, **{name: {**usual, **peers} for name in PEERS}}


@pytest.mark.parametrize(
    ("ours", "peers", "missed"),
    [
        ({}, {}, []),
        ({"refusing_lost": 2}, {}, []),
        ({"refusing_lost": 3}, {}, ["refusing_lost"]),
        ({"away_again_seconds": 9.0}, {"away_again_seconds": None}, []),
        ({"away_again_seconds": None}, {"away_again_seconds": None}, ["away_again_seconds"]),
        ({"ties_busiest_share": 1.0}, {}, ["ties_busiest_share"]),
    ],
)
def test_each_case_is_compared_with_the_best_peer(
    ours: dict[str, Any], peers: dict[str, Any], missed: list[str]
) -> None:
    assert [target.name for target in fault_targets(faults(ours, peers)) if not target.met] == missed


def test_latency_is_compared_within_each_round() -> None:
    costs = Costs({(OURS, 1): Cost([0.5, 5.1, 0.5]), ("sglang-router", 1): Cost([0.4, 5.0, 0.2])})
    (target,) = cost_targets(costs)
    assert target.value == pytest.approx(0.1)
    assert not cost_targets(Costs())[0].met


def test_the_table_names_versions_and_what_never_came() -> None:
    lines = table({OURS: {"again": 1.234}, "smg": {"again": None}})
    assert lines == ["| | warmroute | smg 1.13.0 |", "| --- | --- | --- |", "| again | 1.23 | never |"]
