"""Weights in closed loops, in virtual time: noise, a step, a load in step with the scrapes, zeros, newcomers.

A model fleet: each engine serves some requests at once, each for a second; the rest waits. Requests go
where the weights in force say, at random; each engine's gauges are read once a second, at a moment of its
own.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, WeightSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import weigh
from xds_server.weights.weigh import Weigher

if TYPE_CHECKING:
    from collections.abc import Callable

    from xds_server.weights.weigh import WeightUpdate

pytestmark = pytest.mark.untraced

TICK = 0.25
SCRAPE_TICKS = 4
SERVICE_TICKS = 4


class Fleet:
    """Engines in virtual time, and a weigher that steers them."""

    def __init__(self, engines: int, slots: int = 20, seed: int = 1, strategy: str = "headroom") -> None:
        self.rng = np.random.default_rng(seed)
        self.weigher = Weigher(WeightSettings(strategy=strategy), SignalSettings())  # type: ignore[arg-type]
        self.slots = np.full(engines, slots)
        self.names = [f"e{number}" for number in range(engines)]
        self.ends: list[list[int]] = [[] for _ in range(engines)]
        self.queues = np.zeros(engines, dtype=int)
        self.loads: dict[str, Load] = {}
        self.tick = 0
        self.sent: Counter[int] = Counter()
        self.history: list[tuple[float, WeightUpdate]] = []
        self.lies: Callable[[int, Load], Load] = lambda _, load: load
        self.outside = np.zeros(engines)

    @property
    def now(self) -> float:
        return self.tick * TICK

    def run(self, seconds: float, rate: Callable[[float], float]) -> None:
        for _ in range(round(seconds / TICK)):
            self._serve(rate(self.now))
            for row in range(len(self.names)):
                if not self.loads.get(self.names[row]) or self.tick % SCRAPE_TICKS == row % SCRAPE_TICKS:
                    self.loads[self.names[row]] = self.lies(row, self._load_of(row))
            pool = Pool("p", tuple(Endpoint(name, "p") for name in self.names))
            self.history.append((self.now, weigh(self.weigher, Membership((pool,)), self.loads, self.now)))
            self.tick += 1

    def _serve(self, rate: float) -> None:
        for row, ends in enumerate(self.ends):
            self.queues[row] += self.rng.poisson(self.outside[row] * TICK)
            ends[:] = [end for end in ends if end > self.tick]
        if self.history:
            weights = np.array([self.history[-1][1].weights.get(name, 1) for name in self.names], dtype=float)
        else:
            weights = np.ones(len(self.names))
        picks = self.rng.choice(len(self.names), self.rng.poisson(rate * TICK), p=weights / weights.sum())
        self.sent.update(picks.tolist())
        np.add.at(self.queues, picks, 1)
        for row, ends in enumerate(self.ends):
            started = min(int(self.queues[row]), int(self.slots[row]) - len(ends))
            ends += [self.tick + SERVICE_TICKS] * started
            self.queues[row] -= started

    def _load_of(self, row: int) -> Load:
        running, waiting = len(self.ends[row]), int(self.queues[row])
        wait = 0.1 + waiting / self.slots[row]
        values = {
            "memory_used_ratio": 0.8 * running / self.slots[row],
            "queue_depth": waiting,
            "running": running,
            "latency_p50_seconds": wait,
            "latency_p99_seconds": 2 * wait,
        }
        return Load(**{name: Signal(float(value), self.now, "model") for name, value in values.items()})

    def shares(self, row: int, since: float = 0.0) -> list[float]:
        """Of one engine, over the fair share, at each tick."""
        multiples = []
        for at, update in self.history:
            if at >= since:
                weights = update.weights
                multiples.append(weights[self.names[row]] / sum(weights.values()) * len(weights))
        return multiples

    def updates(self, since: float) -> list[float]:
        return [at for at, update in self.history if update.changed and at >= since]


def overshoots(shares: list[float], before: float, settled: float) -> int:
    past = [(share - settled) * (settled - before) > 0 and abs(share / settled - 1) > 0.1 for share in shares]
    return sum(now and not earlier for earlier, now in pairwise([False, *past]))


def jittered(rng: np.random.Generator) -> Callable[[int, Load], Load]:
    def shaken(_: int, load: Load) -> Load:
        signals = {name: getattr(load, name) for name in ("memory_used_ratio", "queue_depth", "running")}
        signals |= {name: getattr(load, name) for name in ("latency_p50_seconds", "latency_p99_seconds")}
        return Load(
            **{name: one._replace(value=one.value * rng.uniform(0.9, 1.1)) for name, one in signals.items()}
        )

    return shaken


@pytest.mark.parametrize("strategy", ["headroom", "p99", "predictive", "balanced"])
def test_jitter_makes_at_most_one_push_in_ten_seconds(strategy: str) -> None:
    """Steady loads around which everything told shakes by 10 %, besides what chance does to the load."""
    fleet = Fleet(4, slots=100, strategy=strategy)
    fleet.lies = jittered(fleet.rng)
    fleet.run(80.0, lambda _: 200.0)
    assert len(fleet.updates(20.0)) <= 6


@pytest.mark.parametrize("seed", range(4))
def test_a_load_step_settles_with_at_most_one_overshoot(seed: int) -> None:
    fleet = Fleet(4, slots=100, seed=seed)
    fleet.run(20.0, lambda _: 120.0)
    fleet.outside[0] = 40.0
    fleet.run(80.0, lambda _: 120.0)
    shares = fleet.shares(0, 20.0)
    settled = float(np.mean(shares[len(shares) // 2 :]))
    assert settled < 0.8
    assert overshoots(shares, 1.0, settled) <= 1
    assert max(abs(share / settled - 1) for share in shares[len(shares) // 2 :]) < 0.25


@pytest.mark.parametrize("phase", [0.0, 0.5])
def test_load_in_step_with_scrapes_swings_no_more_with_time(phase: float) -> None:
    """Each engine is always read at the same moment of the period: some at its peak, some in its trough."""
    fleet = Fleet(4, slots=60)
    fleet.run(240.0, lambda now: 400.0 if (now + phase) % 1.0 < 0.3 else 40.0)
    swings = [
        max(max(part) - min(part) for part in (fleet.shares(row)[since : since + 120] for row in range(4)))
        for since in range(0, 960, 120)
    ]
    assert np.mean(swings[4:]) <= 1.5 * np.mean(swings[:4])
    assert max(swings) <= 0.7
    means = [np.mean(fleet.shares(row, 60.0)) for row in range(4)]
    assert means == pytest.approx([1.0] * 4, abs=0.1), "who is read at the peak is not worse off for long"


@pytest.mark.parametrize("liars", [1, 2, 4])
def test_engines_that_report_zeros_get_no_flood(liars: int) -> None:
    """18 s of zeros, in which 400 requests come in 10 s: nobody gets more than twice the fair share."""
    fleet = Fleet(4, slots=15)
    fleet.run(20.0, lambda _: 30.0)
    nothing = Load(
        **{
            name: Signal(0.0, 0.0, "model")
            for name in ("memory_used_ratio", "queue_depth", "running", "latency_p99_seconds")
        }
    )

    def zeros(row: int, load: Load) -> Load:
        if row >= liars:
            return load
        signals = {name: getattr(nothing, name)._replace(observed_at=fleet.now) for name in ZEROED}
        return Load(**signals)

    fleet.lies = zeros
    fleet.run(4.0, lambda _: 30.0)
    fleet.sent.clear()
    fleet.run(10.0, lambda _: 40.0)
    total = sum(fleet.sent.values())
    assert max(fleet.sent.values()) <= 2 * total / 4
    assert max(max(fleet.shares(row, 24.0)) for row in range(4)) <= 1.5


ZEROED = ("memory_used_ratio", "queue_depth", "running", "latency_p99_seconds")


def test_requests_in_flight_count_before_gauges_do() -> None:
    idle = {name: Signal(0.0, 0.0, "t") for name in ZEROED}
    busy = Load(**{**idle, "memory_used_ratio": Signal(0.1, 0.0, "t"), "running": Signal(4.0, 0.0, "t")})
    loads = {"a": Load(**idle, in_flight=Signal(20.0, 0.0, "t")), "b": busy, "c": busy}
    pool = Pool("p", tuple(Endpoint(address, "p") for address in "abc"))
    weights = weigh(Weigher(WeightSettings(), SignalSettings()), Membership((pool,)), loads, 0.0).weights
    assert weights["a"] < weights["b"] == weights["c"]


def test_newcomer_is_neutral_for_a_minute() -> None:
    fleet = Fleet(3, slots=60)
    fleet.run(20.0, lambda _: 90.0)
    fleet.names.append("new")
    fleet.slots = np.append(fleet.slots, 600)
    fleet.ends.append([])
    fleet.queues, fleet.outside = np.append(fleet.queues, 0), np.append(fleet.outside, 0.0)
    fleet.run(100.0, lambda _: 90.0)
    first, later = fleet.shares(3, 20.0)[:235], fleet.shares(3, 20.0)[-20:]
    assert max(first) <= 1.1
    assert np.mean(later) > 1.2
    verdict = fleet.history and fleet.weigher.verdict("new")
    assert verdict
    assert verdict.reason != "neutral"


def test_nobody_is_neutral_at_start_or_after_restore() -> None:
    full = {name: Signal(0.8, 0.0, "t") for name in ("memory_used_ratio",)}
    loads = {"a": Load(**full), "b": Load(memory_used_ratio=Signal(0.1, 0.0, "t"))}
    membership = Membership((Pool("p", (Endpoint("a", "p"), Endpoint("b", "p"))),))
    fresh = Weigher(WeightSettings(), SignalSettings())
    assert weigh(fresh, membership, loads, 0.0).weights["b"] > 1300
    restored = Weigher(WeightSettings(), SignalSettings())
    restored.restore(membership, {"a": 1000, "b": 1000}, (), 0.0)
    restored.on_answers({"a", "b"})
    for tick in range(40):
        memory_only = {name: Load(memory_used_ratio=load.memory_used_ratio) for name, load in loads.items()}
        update = weigh(restored, membership, memory_only, tick * TICK)
    assert update.weights["b"] > 1300
