"""Weights alone in the replay: series of engines' loads for `bench.prediction`, and what forecasts change."""

from __future__ import annotations

from math import pi, sin
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from prometheus_client import CollectorRegistry

from warmroute.replay.figures import figures
from warmroute.replay.policies.policy import Plan
from warmroute.replay.policies.weights import Weights
from warmroute.replay.run import replay
from warmroute.replay.signal_path import SignalPath
from warmroute.replay.trace import Trace, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warmroute.replay.engine import Engine
    from warmroute.replay.figures import Figures
    from warmroute.replay.job import Job

SCRAPE_SECONDS: Final = 0.5
RECORDED: Final = ("queue_depth", "running", "memory_used_ratio")


class _WeightsAlone(Weights):
    """The strategy `predictive` alone, with the loads that it had."""

    def __init__(self, engines: Sequence[Engine], plan: Plan, horizon_seconds: float) -> None:
        self.samples: list[tuple[float, Any]] = []
        super().__init__(engines, plan, "predictive")
        weights = self.settings.weights
        forecast = weights.forecast.model_copy(update={"horizon_seconds": horizon_seconds})
        self.settings = self.settings.model_copy(
            update={"weights": weights.model_copy(update={"forecast": forecast})}
        )
        self.path = SignalPath(self.settings, self.path.membership, CollectorRegistry())

    def tick(self, now: float) -> None:
        """Compute and publish, and keep the loads."""
        signals = self.path.tick(now).signals
        self.samples.append((now, [signals[name] for name in RECORDED]))


def run(trace: Trace, job: Job, horizon_seconds: float) -> tuple[Figures, list[tuple[float, Any]]]:
    """Replay a trace; return its figures and the loads of each tick."""
    trace, config = job.arrivals(trace), job.engine(trace.block_tokens)
    policies: list[_WeightsAlone] = []

    def policy(engines: Sequence[Engine]) -> _WeightsAlone:
        plan = Plan(config, job.seed, scrape_seconds=SCRAPE_SECONDS)
        policies.append(_WeightsAlone(engines, plan, horizon_seconds))
        return policies[0]

    outcome = replay(trace, policy, config, job.replicas)
    return figures(outcome, job.limits), policies[0].samples


def bursty(seed: int = 1) -> Trace:
    """Ten minutes in which the rate doubles for some seconds, again and again, at random times."""
    draw = Random(seed)
    bursts: list[float] = []
    at = 0.0
    while at < _SECONDS:
        at += draw.expovariate(1 / 20.0)
        bursts.append(at)

    def rate(now: float) -> float:
        return 55.0 if any(0.0 <= now - begin < 4.0 for begin in bursts) else 18.0

    return _generated("bursty", seed, rate, 55.0)


def periodic(seed: int = 1) -> Trace:
    """Ten minutes in which the rate swings between a tenth and twice its mean, once in 12 s."""
    return _generated("periodic", seed, lambda now: 25.0 * (1.05 + 0.95 * sin(2 * pi * now / 12.0)), 50.0)


_SECONDS: Final = 600.0


def _generated(name: str, seed: int, rate: Callable[[float], float], most: float) -> Trace:
    """Return requests at a rate by time, by thinning (Lewis and Shedler 1979); no two share a prefix."""
    draw, requests, at = Random(seed), list[TraceRequest](), 0.0
    while (at := at + draw.expovariate(most)) < _SECONDS:
        if draw.random() * most < rate(at):
            prompt = min(32_000, int(draw.lognormvariate(7.6, 0.9)) + 1)
            output = min(2_000, int(draw.lognormvariate(4.8, 0.8)) + 1)
            first = len(requests) << 16
            blocks = tuple(range(first, first + prompt // 512))
            requests.append(TraceRequest(at, prompt, output, blocks))
    return Trace(name, 512, tuple(requests))


def packed(samples: Sequence[tuple[float, Any]]) -> dict[str, Any]:
    """Return a series small enough to keep: counts and ten-thousandths, once a scrape."""
    every = samples[::2]
    loads = np.nan_to_num(np.array([load for _, load in every]), nan=-1.0)
    loads[:, 2] *= np.where(loads[:, 2] >= 0, 1e4, 1.0)
    return {"at": np.array([at for at, _ in every], np.float32), "loads": np.rint(loads).astype(np.int16)}


def unpacked(series: Any) -> tuple[Any, Any]:
    """Return times and loads, samples x signals x endpoints, of what `packed` returned."""
    loads = np.where(series["loads"] < 0, np.nan, series["loads"].astype(np.float64))
    loads[:, 2] /= 1e4
    return series["at"].astype(np.float64), loads
