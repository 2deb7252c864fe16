"""Shares and recoveries must be worked out from the right requests, and targets hold the right figures."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bench.fault_cases import CASES, Case, Sent, Strike, turns
from bench.faults import again, figures, healthy_rate, targets_of
from ext_proc.prompt.blocks import block_hashes, identity_of
from ext_proc.prompt.decode import BodyReader, Prompt
from warmroute.demo.stats import Outcome
from warmroute.simulator.admin import read_fault

STRUCK, SOUND = "h:0", "h:1"


def answered(at: float, served: str, e2e: float = 0.1) -> Outcome:
    return Outcome(at, at + e2e, status=200, served=served)


def struck(moved: Sent, healed: Sent, **more: Any) -> Strike:
    fields = {"began_at": 4, "struck_at": 10, "healed_at": 20, "ended_at": 30, **more}
    return Strike(CASES[0], STRUCK, **fields, moved=moved, healed=healed, least_trust=None, marked=False)


def test_shares_count_requests_from_three_seconds_to_recovery() -> None:
    moved, healed = Sent((50, 10, 10, 10), (5, 5, 5, 5), None), Sent((60, 40, 40, 40), (5, 15, 15, 15), None)
    result = figures(struck(moved, healed), [], [])
    assert result["share_after_3s"] == 0.1
    assert result["picked_share_after_3s"] == 0.0
    assert result["weighted_share_after_3s"] is None


def test_a_host_that_left_and_came_back_counts_from_zero() -> None:
    result = figures(struck(Sent((50, 10), None, None), Sent((10, 40), None, None)), [], [])
    assert result["share_after_3s"] == 0.25


def test_failures_are_counted_by_cause_and_time() -> None:
    bad = [Outcome(at, at + 0.1, failure="status 503", status=503) for at in (5, 11, 15, 25)]
    none = Sent((0,), None, None)
    result = figures(struck(none, none), [*bad, Outcome(9.9, 10.5, failure="broken stream")], [])
    assert result["failures"] == {"status 503": 2, "broken stream": 1}
    assert result["failures_after_3s"] == {"status 503": 1}
    assert result["failures_after_recovery"] == {"status 503": 1}


def test_the_healthy_rate_excludes_struck_engine_and_failures() -> None:
    outcomes = [answered(1, SOUND), answered(2, STRUCK), Outcome(3, 4, failure="timeout", served=SOUND)]
    assert healthy_rate(outcomes, STRUCK, 0, 10) == 1 / 3


def test_the_healthy_rate_counts_requests_planned_and_answered() -> None:
    """Twice the requests and twice the answers are no better; answers that come late are not there."""
    outcomes = [answered(number / 10, SOUND) for number in range(1, 41)]
    assert healthy_rate(outcomes, STRUCK, 0, 2) == pytest.approx(
        healthy_rate(outcomes, STRUCK, 0, 4), abs=0.06
    )
    late = [answered(number / 10, SOUND, e2e=5.0) for number in range(1, 41)]
    assert healthy_rate(late, STRUCK, 0, 4) == 0
    assert healthy_rate([], STRUCK, 0, 4) is None


def test_a_share_is_back_when_a_whole_window_holds_it() -> None:
    """One answer is not enough, and requests that started before the recovery do not count."""
    early = [answered(19.9, STRUCK), answered(20.1, STRUCK)]
    others = [answered(20 + n / 10, SOUND) for n in range(100)]
    back = [answered(24 + n / 10, STRUCK) for n in range(60)]
    result = again([*early, *others, *back], STRUCK, 20, 0.4)
    assert result is not None
    assert 2.5 <= result <= 4.0
    assert again([*early, *others], STRUCK, 20, 0.4) is None
    assert again([], STRUCK, 20, 0.4) is None


def result_of(name: str, **more: Any) -> dict[str, Any]:
    good = {
        "share_after_3s": 0.0,
        "healthy_rate_ratio": 1.2,
        "picked_half_share_again_seconds": 1.0,
        "weighted_half_share_again_seconds": 1.0,
        "least_trust_ratio": 1.0,
        "marked_unhealthy": False,
        "weighted_share_after_3s": 0.05,
    }
    return {"fault": name, **good, **more}


@pytest.mark.parametrize(
    ("result", "unmet"),
    [
        (result_of("frozen"), set()),
        (result_of("frozen", share_after_3s=0.03), {"frozen_share_after_3s"}),
        (result_of("slow_x10", share_after_3s=0.2), set()),
        (result_of("slow_x10", weighted_share_after_3s=0.2), {"slow_x10_weighted_share_after_3s"}),
        (result_of("slow_x10", healthy_rate_ratio=0.8), {"slow_x10_healthy_rate_ratio"}),
        (
            result_of("killed", picked_half_share_again_seconds=None),
            {"killed_picked_half_share_again_seconds"},
        ),
        (
            result_of("killed", weighted_half_share_again_seconds=6.0),
            {"killed_weighted_half_share_again_seconds"},
        ),
        (result_of("status_429", least_trust_ratio=0.02), set()),
        (result_of("status_429", marked_unhealthy=True), {"status_429_marked_unhealthy"}),
        (result_of("status_503", marked_unhealthy=True), set()),
    ],
)
def test_each_target_judges_its_figure(result: dict[str, Any], unmet: set[str]) -> None:
    assert {entry.name for entry in targets_of([result]) if not entry.met} == unmet


@pytest.mark.parametrize("case", [case for case in CASES if case.fault is not None])
def test_the_engine_understands_every_fault(case: Case) -> None:
    assert case.fault is not None
    assert read_fault(msgspec.json.encode(case.fault)).kind == case.fault["kind"]


def test_no_request_shares_its_first_block_with_another() -> None:
    """Otherwise a warm cache would decide, and a fair share would mean nothing."""
    made = turns(1, 50.0, 20.0)
    assert 800 < len(made) < 1200
    assert [turn.at_seconds for turn in made] == sorted(turn.at_seconds for turn in made)
    first = set()
    for turn in made:
        prompt = BodyReader().read(turn.body("m"), complete=True).prompt
        assert isinstance(prompt, Prompt)
        first.update(block_hashes(prompt.text, identity=identity_of("m", ""), block_bytes=64, max_blocks=1))
    assert len(first) == len(made)
