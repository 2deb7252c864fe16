"""What requests felt of a fault must be counted from the right requests."""

from __future__ import annotations

import pytest

from bench.outage import result_of, targets_of
from bench.strikes import Fault, baseline, felt, picks_resumed
from warmroute.demo.processes import BenchError
from warmroute.demo.stats import Outcome

FAULT = Fault("ext-proc", "kill", struck_at=10, returned_at=15, ended_at=20, push_resumed_seconds=0.5)


def answered(at: float, e2e: float = 0.1, picked: str | None = "a:1") -> Outcome:
    return Outcome(at, at + e2e, status=200, picked=picked, served="a:1")


def test_requests_before_and_after_the_watch_do_not_count() -> None:
    outcomes = [answered(5), Outcome(8, 9, failure="timeout"), answered(12), answered(21)]
    assert felt(FAULT, outcomes).requests == 1
    assert felt(FAULT, outcomes).failures == 0


def test_a_request_in_flight_at_the_strike_counts() -> None:
    result = felt(FAULT, [Outcome(9.9, 10.1, failure="broken stream")])
    assert (result.failures, result.failures_of_later_requests) == (1, 0)


def test_the_first_second_is_forgiven_and_no_more() -> None:
    result = felt(FAULT, [answered(10.5, 3.0), answered(11.5, 0.4), answered(12, 0.2)])
    assert result.slowest_seconds == pytest.approx(0.4)


def test_failures_on_a_healthy_engine_count_apart() -> None:
    fault = Fault("engine-0", "kill", 10, 15, 20, 0.5, address="a:1")
    outcomes = [
        Outcome(9.9, 10.1, failure="broken stream", served="a:1"),
        Outcome(9.9, 10.1, failure="broken stream", served="b:1"),
        Outcome(9.9, 10.1, failure="status 503"),
    ]
    result = felt(fault, outcomes)
    assert (result.failures, result.failures_elsewhere) == (3, 1)


def test_a_failure_by_the_next_fault_is_not_counted_twice() -> None:
    """The request starts in the watch of the first fault and fails when the second strikes."""
    second = Fault("xds", "kill", struck_at=20, returned_at=25, ended_at=30, push_resumed_seconds=0.5)
    outcomes = [answered(1), answered(12), Outcome(19.5, 20.1, failure="broken stream"), answered(22)]
    first_felt, second_felt = (felt(fault, outcomes) for fault in (FAULT, second))
    assert (first_felt.failures, second_felt.failures) == (0, 1)
    assert first_felt.slowest_seconds == pytest.approx(0.5), "up to the second strike only"
    result, _ = result_of(outcomes, [FAULT, second])
    assert result["failures_outside_faults"] == 0


def test_a_failure_outside_all_faults_is_unmet() -> None:
    steady = [answered(16 + n / 10) for n in range(30)]
    outcomes = [answered(1), Outcome(2, 3, failure="timeout"), answered(12), *steady]
    result, all_felt = result_of(outcomes, [FAULT])
    unmet = {entry.name for entry in targets_of(result, all_felt) if not entry.met}
    assert unmet == {"failures_outside_faults"}


def test_picks_have_resumed_at_the_first_of_many_in_a_row() -> None:
    flicker = [answered(15.1), answered(15.2, picked=None)]
    steady = [answered(16 + n / 10) for n in range(30)]
    assert picks_resumed(15, [*flicker, *steady]) == pytest.approx(1.0)


def test_picks_that_never_come_back_are_unknown() -> None:
    assert picks_resumed(15, [answered(16 + n / 10, picked=None) for n in range(30)]) is None


def test_baseline_ends_at_the_first_strike() -> None:
    assert baseline([answered(1, 0.2), answered(9.95, 0.5)], until=10) == [pytest.approx(0.2)]
    with pytest.raises(BenchError):
        baseline([], until=10)


def test_a_slow_request_and_a_missing_push_are_unmet() -> None:
    fault = Fault("xds", "freeze", 10, 15, 20, push_resumed_seconds=None)
    steady = [answered(16 + n / 10) for n in range(30)]
    outcomes = [answered(1), answered(12, 1.5), *steady]
    result, all_felt = result_of(outcomes, [fault])
    unmet = {entry.name for entry in targets_of(result, all_felt) if not entry.met}
    assert unmet == {"xds_freeze_slowest_over_baseline_seconds", "xds_freeze_push_resumed_seconds"}
