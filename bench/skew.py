"""Skew in a synthetic fleet, in virtual time: the delay of each kind's report, and false alarms of noise.

Three pools of endpoints have signals that vary by 20 % (uniformly, each at every scrape). First, the fleet is
healthy for an hour: every event is a false alarm. Then each kind is planted on one endpoint or on a whole
pool, each time at another moment of the period. The bench counts the periods from its begin to the event, the
periods until the event is over, and the number of reports (one is right). Figures of prompts move like the
scraper's, whose window of 30 s mixes old and new ones. Planted values pass their threshold by more than the
noise (P99 is 6 x P50), and healthy ones stay clear of it (2 x P50). Last comes the cost of one period at
1,000 endpoints.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, SkewSettings
from fleet.signals import SignalTable
from testing.signals import Load, Signal, table_of
from warmroute.demo import report
from xds_server.skew.detectors import DETECTORS
from xds_server.skew.watch import SkewWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from warmroute.demo.report import Target
    from xds_server.skew.event import SkewEvent

NOISE: Final = 0.2
SIGNALS: Final = SignalSettings(stale_after_seconds=10.0, latency_window_seconds=30.0)
HEALTHY: Final[Mapping[str, float]] = {
    "latency_p50_seconds": 0.2,
    "latency_p99_seconds": 0.4,
    "requests_per_second": 8.0,
    "running": 40.0,
    "queue_depth": 2.0,
    "in_flight": 42.0,
    "batch_limit": 64.0,
    "prompt_tokens_mean": 900.0,
    "prompt_tokens_variance": 4e5,
    "generation_tokens_mean": 200.0,
    "prompt_tokens_per_second": 7200.0,
    "generation_tokens_per_second": 1600.0,
    "prefix_hit_ratio": 0.6,
    "memory_used_ratio": 0.6,
    "kv_capacity_tokens": 100_000.0,
}
EXACT: Final = frozenset({"batch_limit", "kv_capacity_tokens"})
_WARM_UP_PERIODS: Final = 24
_STAY_PERIODS: Final = 12


def _tail(load: dict[str, float], _: float) -> None:
    load["latency_p99_seconds"] = 6.0 * load["latency_p50_seconds"]


def _collapse(load: dict[str, float], _: float) -> None:
    load.update(running=4.0, queue_depth=30.0, in_flight=34.0)


def _burst(load: dict[str, float], seconds: float) -> None:
    """Prompts of 6,000 tokens come instead, and fill the scraper's window by and by."""
    share = min(seconds / SIGNALS.latency_window_seconds, 1.0)
    old, new = load["prompt_tokens_mean"], 6000.0
    spread = (1 - share) * load["prompt_tokens_variance"] + share * 4e6
    load["prompt_tokens_mean"] = (1 - share) * old + share * new
    load["prompt_tokens_variance"] = spread + share * (1 - share) * (new - old) ** 2


PLANTS: Final[dict[str, Callable[[dict[str, float], float], None]]] = {
    "long_tail": _tail,
    "batch_collapse": _collapse,
    "context_burst": _burst,
}


@dataclass
class Planted:
    """What came of planting one kind at one place."""

    detected_periods: float | None
    """From its begin; None: never."""
    over_periods: float | None
    """From its end (of a burst: from its begin, because what stays becomes normal) until the event's."""
    events: int
    """Events of this kind at this place."""
    elsewhere: int
    """Events of other kinds, or of the same at places that have no part in it."""


class Replay:
    """A watch on a fleet in virtual time, updated at every tick."""

    def __init__(self, sizes: Sequence[int], seed: int, tick_seconds: float = 1.0) -> None:
        self.pools = tuple(
            Pool(
                f"pool{n}",
                tuple(Endpoint(f"10.{n}.{i // 250}.{i % 250 + 1}:80", f"pool{n}") for i in range(size)),
            )
            for n, size in enumerate(sizes)
        )
        self.membership = Membership(self.pools)
        self.settings = SkewSettings()
        self.watch = SkewWatch(self.settings, SIGNALS, CollectorRegistry())
        self.random = random.Random(seed)
        self.tick_seconds = tick_seconds
        self.now = 0.0
        self.costs: list[float] = []

    def run(
        self, seconds: float, plant: str = "", where: frozenset[str] = frozenset(), since: float = 0.0
    ) -> Iterator[SkewEvent]:
        """Let time pass; yields what begins and ends."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            addresses = self.membership.addresses
            loads = {address: self._load(plant if address in where else "", since) for address in addresses}
            signals = table_of(addresses, loads)
            before = time.perf_counter()
            changes = self.watch.observe(self.membership, signals, self.now)
            self.costs.append(time.perf_counter() - before)
            yield from changes
            self.now += self.tick_seconds

    def _load(self, plant: str, since: float) -> Load:
        values = dict(HEALTHY)
        if plant:
            PLANTS[plant](values, self.now - since)
        vary = self.random.uniform
        return Load(
            **{
                name: Signal(
                    value if name in EXACT else value * vary(1 - NOISE, 1 + NOISE), self.now, "bench"
                )
                for name, value in values.items()
            }
        )


def false_alarms(sizes: Sequence[int], seconds: float, seed: int) -> int:
    """Count the events of a fleet in which nothing is wrong."""
    replay = Replay(sizes, seed, tick_seconds=SkewSettings().period_seconds)
    return sum(event.ended_at is None for event in replay.run(seconds))


def plant(kind: str, *, whole_pool: bool, seed: int) -> Planted:
    """Plant one kind after a calm time, and take it away again."""
    replay = Replay((3, 4, 8), seed)
    period = replay.settings.period_seconds
    pool = replay.random.choice(replay.pools)
    chosen = pool.endpoints if whole_pool else (replay.random.choice(pool.endpoints),)
    where = frozenset(endpoint.address for endpoint in chosen)
    list(replay.run(_WARM_UP_PERIODS * period + replay.random.randrange(int(period))))
    begun_at = replay.now
    changes = [*replay.run(_STAY_PERIODS * period, kind, where, begun_at)]
    ended_at = begun_at if kind == "context_burst" else replay.now
    changes += replay.run(_WARM_UP_PERIODS * period)
    place = None if whole_pool else chosen[0].address
    own = [event for event in changes if (event.kind, event.address) == (kind, place)]
    begins = [event.began_at for event in own if event.ended_at is None]
    ends = [event.ended_at for event in own if event.ended_at is not None]
    strange = sum(
        event.ended_at is None
        and (event.kind != kind or event.pool != pool.name or event.address not in (*where, None))
        for event in changes
    )
    return Planted(
        detected_periods=(begins[0] - begun_at) / period if begins else None,
        over_periods=(ends[-1] - ended_at) / period if ends else None,
        events=len(begins),
        elsewhere=strange,
    )


def cost(endpoints: int, seed: int) -> dict[str, float]:
    """Measure one period's work, and what a tick between two periods costs."""
    replay = Replay([endpoints // 10] * 10, seed, tick_seconds=SkewSettings().period_seconds)
    list(replay.run(20 * replay.settings.period_seconds))
    signals = SignalTable.unknown(replay.membership.addresses)
    replay.watch.observe(replay.membership, signals, replay.now)
    before = time.perf_counter()
    for _ in range(1000):
        replay.watch.observe(replay.membership, signals, replay.now)
    idle = (time.perf_counter() - before) / 1000
    before = time.perf_counter()
    replay.watch.diagnosis()
    return {
        "endpoints": endpoints,
        "period_ms": round(median(replay.costs) * 1000, 3),
        "tick_between_us": round(idle * 1e6, 3),
        "diagnosis_ms": round((time.perf_counter() - before) * 1000, 3),
    }


def measure(hours: float, trials: int, seed: int) -> tuple[dict[str, Any], list[Target]]:
    """Run all of it."""
    report.progress(f"{hours:g} h of noise on 60 endpoints")
    alarms = false_alarms((10, 20, 30), hours * 3600, seed)
    targets = [report.exactly("false_alarms", alarms, 0)]
    kinds: dict[str, Any] = {}
    for kind in DETECTORS:
        report.progress(f"{kind}: planted {2 * trials} times")
        runs = [
            plant(kind, whole_pool=whole_pool, seed=seed + n)
            for n in range(trials)
            for whole_pool in (False, True)
        ]
        kinds[kind] = _summary(runs)
        targets += [
            report.exactly(f"{kind}_found", kinds[kind]["found"], len(runs)),
            report.at_most(f"{kind}_found_periods_most", kinds[kind]["found_periods_most"], 4),
            report.exactly(f"{kind}_told_again", kinds[kind]["told_again"], 0),
            report.exactly(f"{kind}_elsewhere", kinds[kind]["elsewhere"], 0),
        ]
    result = {
        "noise_ratio": NOISE,
        "hours": hours,
        "false_alarms": alarms,
        "kinds": kinds,
        "cost": cost(1000, seed),
    }
    return result, targets


def _summary(runs: Sequence[Planted]) -> dict[str, Any]:
    detected = [run.detected_periods for run in runs if run.detected_periods is not None]
    over = [run.over_periods for run in runs if run.over_periods is not None]
    return {
        "planted": len(runs),
        "found": len(detected),
        "found_periods_median": round(median(detected), 2) if detected else None,
        "found_periods_most": round(max(detected), 2) if detected else None,
        "over": len(over),
        "over_periods_most": round(max(over), 2) if over else None,
        "told_again": sum(max(run.events - 1, 0) for run in runs),
        "elsewhere": sum(run.elsewhere for run in runs),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(prog="python -m bench.skew", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="of noise; default: 1")
    parser.add_argument("--trials", type=int, default=20, help="of each kind at each place; default: 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    args = parser.parse_args(arguments)
    # What the watch logs of planted skew is no news, in this command only: tests call `measure`.
    logging.getLogger("xds_server.skew.watch").setLevel(logging.CRITICAL)
    result, targets = measure(args.hours, args.trials, args.seed)
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
