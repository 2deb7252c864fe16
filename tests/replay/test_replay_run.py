"""Replays of small traces: every request is answered, times add up, policies do what they are named for."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from warmroute.replay.figures import Figures, Limits, figures, over_seeds
from warmroute.replay.job import Job, replay_job
from warmroute.replay.policies import POLICIES
from warmroute.replay.policies.plain import LeastRequest
from warmroute.replay.policies.policy import Plan
from warmroute.replay.run import replay
from warmroute.replay.trace import Trace, TraceRequest
from warmroute.simulator.model import EngineConfig

ROOT = Path(__file__).parents[2]


def conversations(count: int = 7, turns: int = 5, seconds: float = 0.4, tail: int = 10) -> Trace:
    """Conversations whose turns follow one another: each turn adds a block."""
    requests = []
    for turn in range(turns):
        for number in range(count):
            blocks = tuple(number << 16 | block for block in range(turn + 4))
            at = turn * 4.0 + number * seconds
            requests.append(TraceRequest(at, len(blocks) * 512 + tail, 20, blocks))
    return Trace("conversations", 512, tuple(sorted(requests, key=lambda request: request.at)))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_answers_every_request(policy: str) -> None:
    trace = conversations()
    outcome = replay_job(trace, Job(policy, replicas=3))
    assert outcome.policy == policy
    assert len(outcome.at) == len(trace.requests)
    assert (outcome.ttft > 0).all()
    assert (outcome.e2e >= outcome.ttft).all()
    assert set(outcome.engine) <= {0, 1, 2}
    assert outcome.busy_seconds.sum() > 0
    assert (outcome.cached_tokens < outcome.prompt_tokens).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_same_seed_gives_same_replay(policy: str) -> None:
    first, again = (replay_job(conversations(), Job(policy, seed=3, replicas=3)) for _ in range(2))
    assert (first.engine == again.engine).all()
    assert (first.e2e == again.e2e).all()


def test_warm_policies_find_the_cache() -> None:
    """A conversation's later turns hit where the policy knows who has the earlier ones."""
    ratios = {
        policy: figures(replay_job(conversations(), Job(policy, replicas=3)), Limits()).hit_ratio
        for policy in ("round_robin", "sglang", "warmroute", "greedy_perfect")
    }
    assert ratios["sglang"] > 0.5 > ratios["round_robin"]
    assert ratios["warmroute"] > 0.5
    assert ratios["greedy_perfect"] > 0.5


def test_least_request_balances() -> None:
    draw = random.Random(1)
    requests = tuple(TraceRequest(0.05 * n, draw.randrange(500, 4000), 50, ()) for n in range(200))
    outcome = replay_job(Trace("x", 512, requests), Job("least_request", replicas=4))
    counts = np.bincount(outcome.engine, minlength=4)
    assert counts.max() < 1.3 * counts.mean()


def test_several_workers_know_less_than_one() -> None:
    one, three = (
        figures(replay_job(conversations(turns=8), Job("warmroute", replicas=3, workers=n)), Limits())
        for n in (1, 3)
    )
    assert 0 < three.hit_ratio < one.hit_ratio


def test_replay_is_the_same_in_every_process() -> None:
    code = (
        "from tests.replay.test_replay_run import conversations; from warmroute.replay.job import *;"
        "print(replay_job(conversations(tail=500), Job('warmroute', replicas=3)).engine.tolist())"
    )
    runs = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT).stdout
        for _ in range(2)
    }
    assert len(runs) == 1


def test_idle_days_take_no_time() -> None:
    """A day without requests is skipped: its ticks would take minutes."""
    rings = []

    class Counting(LeastRequest):
        def ring(self, number: int, now: float) -> float:
            rings.append(now)
            return super().ring(number, now)

    requests = tuple(TraceRequest(day * 86_400.0, 1000, 5, ()) for day in range(3))
    config = EngineConfig(num_blocks=100, block_tokens=512, report_tokens=False)
    plan = Plan(config)
    outcome = replay(Trace("x", 512, requests), lambda engines: Counting(engines, plan), config, 2)
    assert outcome.at.tolist() == [0.0, 86_400.0, 172_800.0]
    assert len(rings) < 2000
    assert rings == sorted(rings)
    assert min(abs(ring - 86_400.0) for ring in rings) < 1.0, "gauges are fresh when requests come"


def test_alone_is_the_time_on_an_idle_engine() -> None:
    trace = Trace("x", 512, (TraceRequest(1.0, 3000, 10, ()),))
    outcome = replay_job(trace, Job("round_robin", replicas=1))
    assert outcome.ttft[0] == pytest.approx(outcome.alone[0])
    assert figures(outcome, Limits()).slowdown_p99 == pytest.approx(1.0)


def test_next_turn_waits_for_the_answer() -> None:
    first = TraceRequest(0.0, 2000, 400, (), session="s")
    second = TraceRequest(0.5, 2000, 5, (), session="s", after=0, gap=2.0)
    outcome = replay_job(Trace("x", 512, (first, second)), Job("round_robin", replicas=2))
    assert outcome.at[1] == pytest.approx(outcome.at[0] + outcome.e2e[0] + 2.0)


def test_goodput_counts_both_limits() -> None:
    trace = Trace("x", 512, (TraceRequest(0.0, 8000, 50, ()), TraceRequest(100.0, 100, 50, ())))
    outcome = replay_job(trace, Job("round_robin", replicas=1))
    between = float(outcome.ttft.mean())
    assert figures(outcome, Limits(ttft=between)).goodput == 0.5
    assert figures(outcome, Limits(ttft=between, tpot=1e-6)).goodput == 0.0


def test_interval_over_seeds() -> None:
    """Student's interval of 1, 2, 3: mean 2, half-width 4.303 / sqrt(3)."""
    runs = [Figures(*[value] * len(Figures._fields)) for value in (1.0, 2.0, 3.0)]
    interval = over_seeds(runs)["ttft_p50"]
    assert interval.mean == 2.0
    assert interval.half_width == pytest.approx(4.303 / 3**0.5)
    assert np.isnan(over_seeds(runs[:1])["ttft_p50"].half_width)
