"""The workloads of bench.affinity are what their names say, and its figures follow their definitions."""

from __future__ import annotations

import argparse
import itertools
from dataclasses import replace

import pytest

from bench.affinity import Figures, figures, line, main, plans, targets_of
from bench.affinity_run import HOT_SPEED_UP, Plan, Run, deployment
from bench.prompts import WORKLOADS, WorkloadName, ideal, prompts
from warmroute.demo.stats import Outcome
from warmroute.simulator.workload import Message, Turn

BLOCK_TOKENS = 16


def turn(at: float, text: str) -> Turn:
    return Turn(at, 0, "s", (Message("user", text),), 8)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_seed_fixes_the_requests_and_their_order(name: WorkloadName) -> None:
    first = prompts(name, seed=1, seconds=5.0, rate=20.0)
    assert first == prompts(name, seed=1, seconds=5.0, rate=20.0)
    assert first != prompts(name, seed=2, seconds=5.0, rate=20.0)
    times = [entry.at_seconds for entry in first]
    assert times == sorted(times)
    assert times[0] >= 0
    assert times[-1] < 5.0


@pytest.mark.parametrize("name", WORKLOADS)
def test_requests_arrive_at_about_the_set_rate(name: WorkloadName) -> None:
    count = len(prompts(name, seed=3, seconds=60.0, rate=20.0))
    assert 900 < count < 1500


def test_conversations_repeat_their_own_past_and_nobody_elses() -> None:
    turns = prompts("multi_turn", seed=1, seconds=20.0, rate=15.0)
    by_session = {
        session: [entry.messages[0].content for entry in turns_of_session]
        for session, turns_of_session in itertools.groupby(
            sorted(turns, key=lambda e: (e.session, e.at_seconds)), key=lambda e: e.session
        )
    }
    assert max(len(texts) for texts in by_session.values()) > 3
    beginnings = {texts[0][:64] for texts in by_session.values()}
    assert len(beginnings) == len(by_session)
    assert all(text[:64] == texts[0][:64] for texts in by_session.values() for text in texts)


def test_the_ideal_without_reuse_and_with_one_system_prompt() -> None:
    assert ideal(prompts("no_reuse", seed=1, seconds=10.0, rate=20.0), BLOCK_TOKENS).cached_tokens == 0
    assert (
        ideal(prompts("shared_system_prompt", seed=1, seconds=10.0, rate=20.0), BLOCK_TOKENS).hit_ratio > 0.95
    )
    multi = ideal(prompts("multi_turn", seed=1, seconds=20.0, rate=15.0), BLOCK_TOKENS).hit_ratio
    assert 0.5 < multi < 0.9


def test_the_ideal_counts_whole_leading_blocks_that_came_before() -> None:
    text = "x" * 1000
    share = ideal([turn(0, text), turn(1, text + "y" * 640), turn(2, "z" + text)], BLOCK_TOKENS)
    # "<|user|>" and the text share 15 whole blocks of 64 bytes with what came before; the third shares none.
    assert share.cached_tokens == (1000 + 9) // 64 * 16
    assert share.prompt_tokens > 3 * 250


def test_the_ideal_computes_the_last_token_of_a_repeated_prompt() -> None:
    whole = turn(0, "x" * (640 - len("<|user|>\n") - len("\n<|assistant|>\n")))
    share = ideal([whole, whole], BLOCK_TOKENS)
    assert (share.prompt_tokens, share.cached_tokens) == (320, 144)


def run(workload: WorkloadName = "multi_turn", workers: int | None = 1) -> Figures:
    outcomes = [
        Outcome(0.0, 2.0, ttft_seconds=0.5, prompt_tokens=100, cached_tokens=50),
        Outcome(1.0, 2.0, failure="status 503"),
    ]
    engine_counts = [
        {"requests": 3, "prompt_tokens": 100, "cached_tokens": 40},
        {"requests": 1, "prompt_tokens": 100, "cached_tokens": 10},
    ]
    return figures(Plan(workload, workers), [Run([turn(0, "x" * 256)], outcomes, engine_counts, 0.5)])


def test_engines_count_hits_and_the_client_counts_failures() -> None:
    result = run()
    assert (result.hit_ratio, result.busiest_over_mean) == (0.25, 1.5)
    assert (result.requests, result.failures, result.ttft_p90_seconds, result.e2e_p90_seconds) == (
        2,
        1,
        0.5,
        2.0,
    )


def test_runs_of_a_plan_count_together() -> None:
    first = Run([turn(0, "x" * 256)] * 2, [Outcome(0.0, 1.0)], [{"requests": 3}, {"requests": 1}], 0.5)
    second = Run([turn(0, "y" * 256)], [Outcome(0.0, 3.0)], [{"requests": 1}, {"requests": 3}], 0.9)
    together = figures(Plan("no_reuse", 1), [first, second])
    assert (together.requests, together.busiest_over_mean, together.host_cpu_used_ratio) == (2, 1.0, 0.9)
    assert together.engines_requests == (4, 4)
    assert together.e2e_p50_seconds == 2.0
    assert together.ideal_hit_ratio == pytest.approx(64 / (3 * 70), abs=0.02)


def test_targets_compare_workers_to_one_and_to_least_request() -> None:
    one = replace(run(), failures=0)
    four = replace(one, workers=4, hit_ratio=0.19)
    hot = replace(one, workload="shared_system_prompt", busiest_over_mean=1.6)
    alone = replace(one, workload="no_reuse", workers=None, router="least_request")
    spread = replace(one, workload="no_reuse", ttft_p90_seconds=0.6)
    met = {entry.name: entry.met for entry in targets_of([one, four, hot, alone, spread])}
    assert met == {
        "failures": True,
        "multi_turn_4_workers_hit_ratio_below_one": False,
        "shared_system_prompt_1_workers_busiest_over_mean": False,
        "no_reuse_1_workers_ttft_p90_over_least_request": False,
        "no_reuse_1_workers_e2e_p90_over_least_request": True,
    }


def test_a_figure_that_is_unknown_is_not_met() -> None:
    one = replace(run(), failures=0, hit_ratio=None)
    four = replace(one, workers=4)
    assert not next(e for e in targets_of([one, four]) if e.name.endswith("below_one")).met


def test_a_run_without_workers_is_envoy_alone() -> None:
    alone = deployment(Plan("no_reuse", None), 4)
    assert (alone.router, alone.alone) == ("envoy", "least_request")
    assert deployment(Plan("no_reuse", 2), 4).overrides["ext_proc"]["workers"] == 2


def test_a_hot_prompt_at_another_rate_has_no_target() -> None:
    one = replace(run("shared_system_prompt"), failures=0, busiest_over_mean=1.2)
    idle = replace(one, rate=10.0, busiest_over_mean=4.0)
    assert [entry.met for entry in targets_of([one, idle])] == [True, True]
    assert [entry.name for entry in targets_of([idle])] == ["failures"]
    assert "10/s" in line(idle)
    assert "10/s" not in line(one)


def test_hot_rates_are_of_fast_engines_beside_envoy_alone() -> None:
    options = argparse.Namespace(
        workloads=("shared_system_prompt",), workers=(1,), shared=True, hot_rates=(10.0, 80.0)
    )
    hot = [plan for plan in plans(options) if plan.rate is not None]
    assert [(plan.rate, plan.workers) for plan in hot] == [(10, None), (10, 1), (80, None), (80, 1)]
    assert deployment(hot[0], 4).engine.speed_up == HOT_SPEED_UP
    assert [plan.drive.rate * plan.drive.speed_up for plan in hot] == [10, 10, 80, 80]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--workers", "0"],
        ["--workers", "1,x"],
        ["--workloads", "none"],
        ["--hot-rates", "0"],
        ["--rounds", "0"],
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
