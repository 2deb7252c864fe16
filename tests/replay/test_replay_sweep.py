"""The knee is the highest rate within the limit, and the ideal is that of one endless cache."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from warmroute.replay.figures import Limits, figures
from warmroute.replay.job import Job, replay_job
from warmroute.replay.sweep import PRECISION, knee
from warmroute.replay.trace import Trace, TraceRequest


def crowd(count: int = 60, seconds: float = 0.5) -> Trace:
    draw = random.Random(1)
    return Trace(
        "x", 512, tuple(TraceRequest(seconds * n, draw.randrange(500, 6000), 20, ()) for n in range(count))
    )


@pytest.mark.untraced
@pytest.mark.parametrize("begin", [0.1, 60.0])
def test_knee_is_the_highest_rate_within_the_limit(begin: float) -> None:
    trace, job = crowd(), Job("least_request", replicas=2, rate=begin)
    result = knee(trace, job)
    assert result.figures.ttft_p90 <= result.limit_seconds
    above = replay_job(trace, replace(job, rate=result.rate * (1 + 2 * PRECISION)))
    assert figures(above, Limits()).ttft_p90 > 0.9 * result.limit_seconds
    assert knee(trace, job, factor=4.0).rate > result.rate


def test_more_replicas_have_a_higher_knee() -> None:
    two, four = (knee(crowd(), Job("least_request", replicas=n)).rate for n in (2, 4))
    assert 1.5 * two < four < 3 * two


def test_no_rate_is_slow_enough_for_an_impossible_limit() -> None:
    assert knee(crowd(20), Job("round_robin", replicas=1), factor=0.5).rate == 0.0


def test_ideal_is_one_endless_cache() -> None:
    requests = (
        TraceRequest(0.0, 1100, 1, (1, 2)),
        TraceRequest(1.0, 1100, 1, (1, 3)),
        TraceRequest(2.0, 1024, 1, (1, 2)),  # Its last token is computed, so its last block is not enough.
        TraceRequest(3.0, 1600, 1, (4, 2, 3)),
    )
    assert Trace("x", 512, requests).ideal_hit_ratio == pytest.approx(1024 / 4824)
