"""Engines that fail during a replay, and requests behind Envoy's retries."""

from __future__ import annotations

import numpy as np
import pytest

from fleet.errors import WarmrouteError
from warmroute.replay.fault import Cancels, Fault, FaultKind, cancels_of, check_faults, fault_of
from warmroute.replay.figures import Limits, figures
from warmroute.replay.job import Job, replay_job
from warmroute.replay.policies import POLICIES
from warmroute.replay.trace import Trace, TraceRequest

STEADY = Trace("x", 512, tuple(TraceRequest(0.125 * n, 1500, 40, (n % 5, n % 5 + 9)) for n in range(240)))
"""Half a minute."""


@pytest.mark.untraced
@pytest.mark.parametrize("policy", POLICIES)
def test_requests_go_elsewhere_while_one_is_gone(policy: str) -> None:
    outcome = replay_job(STEADY, Job(policy, replicas=4, faults=(Fault(10.0, 1, 10.0),)))
    failed = np.flatnonzero(outcome.failed)
    assert (outcome.at[failed] < 10.0).all(), "only those that it had when it went"
    assert (outcome.engine[failed] == 1).all()
    assert failed.size < 12
    answered = ~outcome.failed
    assert not np.isnan(outcome.e2e[answered]).any()
    assert np.isnan(outcome.ttft[failed]).all()
    later = (outcome.at > 10.0) & (outcome.at < 20.0)
    assert not (outcome.engine[later] == 1).any()
    assert figures(outcome, Limits()).failed == failed.size / 240


def test_engine_returns_with_an_empty_cache() -> None:
    same = Trace("x", 512, tuple(TraceRequest(10.0 * n, 1500, 2, (1, 2)) for n in range(4)))
    outcome = replay_job(same, Job("round_robin", replicas=1, faults=(Fault(15.0, 0, 2.0),)))
    assert outcome.cached_tokens.tolist() == [0.0, 1024.0, 0.0, 1024.0]


@pytest.mark.parametrize("policy", ["least_request", "warmroute"])
def test_request_without_a_replica_fails_and_counts(policy: str) -> None:
    faults = tuple(Fault(10.0, replica, 5.0) for replica in range(2))
    outcome = replay_job(STEADY, Job(policy, replicas=2, faults=faults))
    during = (outcome.at > 10.0) & (outcome.at < 15.0)
    assert outcome.failed[during].all()
    assert not outcome.failed[outcome.at > 15.0].any()
    result = figures(outcome, Limits())
    assert result.failed >= during.sum() / 240
    assert result.goodput <= 1.0 - result.failed
    assert result.ttft_p99 > 0


def test_frozen_engine_fails_nothing() -> None:
    fault = Fault(10.0, 0, 10.0, FaultKind.FROZEN)
    outcome = replay_job(STEADY, Job("round_robin", replicas=4, faults=(fault,)))
    assert not outcome.failed.any()
    ends = outcome.at + outcome.e2e
    there = outcome.engine == 0
    assert not ((ends > 10.0) & (ends < 20.0) & there).any()
    assert ((outcome.at > 10.0) & (outcome.at < 20.0) & there).any()
    assert ((ends > 20.0) & there).any()


def test_slow_engine_is_avoided_by_load() -> None:
    fault = Fault(5.0, 0, 20.0, FaultKind.SLOW)
    outcome = replay_job(STEADY, Job("least_request", replicas=4, faults=(fault,)))
    during = (outcome.at > 8.0) & (outcome.at < 20.0)
    counts = np.bincount(outcome.engine[during], minlength=4)
    assert counts[0] < counts[1:].min()
    slow = during & (outcome.engine == 0)
    assert outcome.e2e[slow].min() > 2 * np.median(outcome.e2e[during & ~slow])


def test_session_goes_on_after_a_failure() -> None:
    first = TraceRequest(0.0, 2000, 4000, (), session="s")
    second = TraceRequest(0.5, 2000, 5, (), session="s", after=0, gap=2.0)
    job = Job("round_robin", replicas=2, faults=(Fault(1.0, 0, 9.0),))
    outcome = replay_job(Trace("x", 512, (first, second)), job)
    assert outcome.failed.tolist() == [True, False]
    assert outcome.at[1] == pytest.approx(3.0)


@pytest.mark.untraced
@pytest.mark.parametrize("policy", ["look_ahead", "lodestar", "warmroute"])
def test_cancelled_requests_end_and_are_in_no_figure(policy: str) -> None:
    outcome = replay_job(STEADY, Job(policy, replicas=2, cancels=Cancels(0.5, 0.2)))
    left = outcome.cancelled
    assert 60 < left.sum() < 120, "half of them, but for some that ended before"
    assert np.isnan(outcome.e2e[left]).all()
    assert not np.isnan(outcome.e2e[~left]).any()
    result = figures(outcome, Limits(60.0, 60.0))
    assert (result.failed, result.left) == (0.0, left.mean())
    assert result.goodput == pytest.approx(1.0 - (left & np.isnan(outcome.ttft)).mean())
    everybody = Job(policy, replicas=2, cancels=Cancels(1.0, 0.001))
    assert figures(replay_job(STEADY, everybody), Limits()).goodput == 0.0
    assert outcome.engine_tokens.sum() < 0.7 * replay_job(STEADY, Job(policy, replicas=2)).engine_tokens.sum()


@pytest.mark.parametrize("text", ["", "1", "1:2:3", "a:1", "2:1", "-1:1", "0.5:0", "nan:1"])
def test_bad_cancel_is_named(text: str) -> None:
    with pytest.raises(WarmrouteError, match=r"--cancel is .*; allowed: "):
        cancels_of(text)


@pytest.mark.untraced
@pytest.mark.parametrize("policy", ["llm_d", "warmroute"])
def test_late_signals_change_picks(policy: str) -> None:
    """The delay and the interval reach the policies that read engines, below the knee."""
    draw = np.random.default_rng(1)
    requests = tuple(
        TraceRequest(0.1 * n, int(draw.integers(600, 9000)), 60, (int(draw.integers(9)),)) for n in range(120)
    )
    trace = Trace("x", 512, requests)
    usual = replay_job(trace, Job(policy, replicas=4))
    late = replay_job(trace, Job(policy, replicas=4, signal_delay_seconds=5.0))
    rare = replay_job(trace, Job(policy, replicas=4, scrape_seconds=4.0))
    assert (usual.engine != late.engine).any()
    assert (usual.engine != rare.engine).any()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("120:3:60", Fault(120.0, 3, 60.0)),
        ("0:0:0.5:frozen", Fault(0.0, 0, 0.5, FaultKind.FROZEN)),
        ("1e2:1:5:slow", Fault(100.0, 1, 5.0, FaultKind.SLOW)),
    ],
)
def test_fault_is_read(text: str, fault: Fault) -> None:
    assert fault_of(text) == fault


@pytest.mark.parametrize(
    "text", ["", "1", "1:2", "a:1:1", "1:1:1:dead", "1:1:1:gone:x", "nan:1:1", "-1:1:1", "1:1:0", "1:1:inf"]
)
def test_bad_fault_is_named(text: str) -> None:
    with pytest.raises(WarmrouteError, match=r"--fail is .*; allowed: "):
        fault_of(text)


def test_faults_fit_the_fleet_and_each_other() -> None:
    check_faults((Fault(1.0, 0, 1.0), Fault(2.0, 0, 1.0), Fault(1.5, 1, 1.0)), 2)
    with pytest.raises(WarmrouteError, match="replica 2; allowed: 0 to 1"):
        check_faults((Fault(1.0, 2, 1.0),), 2)
    with pytest.raises(WarmrouteError, match=r"two faults of replica 0 at 1\.5 s; allowed: one at a time"):
        check_faults((Fault(1.5, 0, 1.0), Fault(1.0, 0, 1.0)), 2)
