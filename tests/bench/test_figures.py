"""Figures must be right: percentiles, ratios, targets, and the object that `--json` prints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.__main__ import printed_object
from warmroute.demo import report
from warmroute.demo.app import RunResult, result_of, targets_of
from warmroute.demo.stats import Outcome, Summary, percentile, summarise

ENGINES = ("127.0.0.1:1", "127.0.0.1:2")


def ok(at: float, ttft: float, e2e: float, served: str, cached: int = 0, late: float = 0.0) -> Outcome:
    return Outcome(
        at,
        at + e2e,
        status=200,
        ttft_seconds=ttft,
        late_seconds=late,
        prompt_tokens=100,
        cached_tokens=cached,
        completion_tokens=20,
        served=served,
    )


def test_percentile_of_nothing_is_unknown() -> None:
    assert percentile([], 0.99) is None


def test_percentile_is_linear_between_ranks() -> None:
    assert percentile([0.0, 10.0], 0.25) == pytest.approx(2.5)
    assert percentile([float(n) for n in range(101)], 0.99) == pytest.approx(99)


def test_failures_count_but_their_times_do_not() -> None:
    outcomes = [
        ok(0, 0.1, 0.2, ENGINES[0], cached=50),
        ok(1, 0.3, 0.4, ENGINES[0]),
        Outcome(2, 32, failure="timeout"),
        Outcome(3, 4, failure="status 503", status=503),
    ]
    summary = summarise(outcomes, ENGINES)
    assert (summary.requests, summary.failures) == (4, 2)
    assert summary.failure_reasons == {"timeout": 1, "status 503": 1}
    assert summary.ttft_p50_seconds == pytest.approx(0.2)
    assert summary.e2e_p99_seconds == pytest.approx(0.398)
    assert summary.prefix_hit_ratio == pytest.approx(0.25)


def test_idle_endpoints_count_in_the_mean() -> None:
    summary = summarise([ok(0, 0.1, 0.2, ENGINES[0])] * 6, ENGINES)
    assert summary.busiest_over_mean == pytest.approx(2.0)
    assert summary.served == {ENGINES[0]: 6, ENGINES[1]: 0}


def test_the_busiest_is_the_one_with_most_tokens_to_compute() -> None:
    cold, warm = ok(0, 0.1, 0.2, ENGINES[0]), ok(0, 0.1, 0.2, ENGINES[1], cached=80)
    summary = summarise([cold, warm], ENGINES)
    assert summary.busiest_over_mean == pytest.approx(120 / 80), "100 + 20 tokens next to 20 + 20"


def test_lateness_is_that_of_the_load() -> None:
    outcomes = [ok(0, 0.1, 0.2, ENGINES[0], late=0.5), Outcome(2, 32, failure="timeout", late_seconds=0.5)]
    assert summarise(outcomes, ENGINES).late_p99_seconds == pytest.approx(0.5)


def test_without_answers_figures_are_none_not_zero() -> None:
    summary = summarise([], ENGINES)
    assert summary.ttft_p99_seconds is None
    assert summary.prefix_hit_ratio is None
    assert summary.busiest_over_mean is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (report.at_least("a", 2.0, 2.0), True),
        (report.at_least("a", 1.99, 2.0), False),
        (report.at_most("a", 0.6, 0.6), True),
        (report.at_most("a", 0.61, 0.6), False),
        (report.exactly("a", 0, 0), True),
        (report.exactly("a", 1, 0), False),
        (report.at_most("a", None, 0.6), False),
        (report.at_least("a", None, 2.0), False),
        (report.exactly("a", None, 0), False),
        (report.at_most("a", float("nan"), 1.0), False),
    ],
)
def test_targets_include_their_border_and_none_is_never_met(target: report.Target, met: bool) -> None:
    assert target.met is met
    assert report.exit_code([target]) == (0 if met else 1)


def test_ratio_with_an_unknown_part_is_unknown() -> None:
    assert report.ratio(1, 2) == 0.5
    assert report.ratio(None, 2) is None
    assert report.ratio(1, None) is None
    assert report.ratio(1, 0) is None


def run_result(hit: float, p90: float, failures: int = 0, **counts: int) -> RunResult:
    summary = Summary(100, failures, 0.1, p90, 2.0, 3.0, hit, 1.1, 0.001)
    status = {"weight_updates": 3, "pushes": 9, "acks": 9, "nacks": 0, "picks": {"warm": 90, "cold": 10}}
    return RunResult(summary, 0.4, status, counts)


ALONE = (0.3, 1.0, 0)
GOOD = (0.9, 0.5, 0)


def joined(
    robin: tuple[float, float, int] = ALONE,
    least: tuple[float, float, int] = ALONE,
    ours: tuple[float, float, int] = GOOD,
    honoured: int = 100,
) -> dict[str, Any]:
    warmroute = run_result(*ours, routed=100, honoured=honoured)
    return result_of(
        {"round_robin": run_result(*robin), "least_request": run_result(*least), "warmroute": warmroute}
    )


def test_result_has_the_documented_shape_and_meets_its_targets() -> None:
    result = joined()
    run_keys = {
        "requests",
        "failures",
        "ttft_p50_seconds",
        "ttft_p90_seconds",
        "ttft_p99_seconds",
        "e2e_p99_seconds",
        "prefix_hit_ratio",
        "busiest_over_mean",
        "late_p99_seconds",
        "host_cpu_used_ratio",
    }
    for key in ("round_robin", "least_request", "warmroute"):
        assert run_keys <= set(result[key])
    assert {"weight_updates", "acks", "nacks", "picks", "picks_honoured"} <= set(result)
    assert (result["picks"], result["picks_honoured"]) == (100, 1.0)
    assert all(entry.met for entry in targets_of(result))


@pytest.mark.parametrize(
    ("result", "unmet"),
    [
        (joined(robin=(0.3, 1.0, 1)), "round_robin_failures"),
        (joined(least=(0.3, 1.0, 1)), "least_request_failures"),
        (joined(ours=(0.9, 0.5, 1)), "warmroute_failures"),
        (joined(robin=(0.7, 1.0, 0)), "prefix_hit_ratio_over_round_robin"),
        (joined(least=(0.7, 1.0, 0)), "prefix_hit_ratio_over_least_request"),
        (joined(robin=(0.3, 0.6, 0)), "ttft_p90_over_round_robin"),
        (joined(least=(0.3, 0.6, 0)), "ttft_p90_over_least_request"),
        (joined(honoured=98), "picks_honoured"),
    ],
)
def test_each_target_can_be_missed(result: dict[str, Any], unmet: str) -> None:
    assert [entry.name for entry in targets_of(result) if not entry.met] == [unmet]


def test_printed_result_is_one_json_object_on_the_last_line(capsys: pytest.CaptureFixture[str]) -> None:
    result = joined()
    report.print_json(result, targets_of(result))
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {"round_robin", "warmroute", "wanted"} <= set(printed)
    assert {"name", "value", "wanted", "met"} == set(printed["wanted"][0])


def test_the_summary_reads_whole_output_or_its_last_line() -> None:
    assert printed_object('progress\n{"a": 1}\n') == {"a": 1}
    assert printed_object('{\n  "a": 1\n}\n') == {"a": 1}
    assert printed_object("progress\n") is None
    assert printed_object("") is None
    assert printed_object("1\n") is None
