"""Weights in closed loops: noise, a load step, a load in step with the scrapes, engines that report zeros.

Each case has its own deployment: simulated engines behind Envoy and `warmroute serve`, under requests without
warm engines. By default weights alone steer, because the requests' content type keeps them from ext_proc.
`--steer picks` lets ext_proc pick, which shows the weights' behaviour meanwhile.

jitter      every gauge of every engine is off by up to 10 %: updates of weights
step        from one moment on, more requests reach one engine without Envoy: how its weight settles
period      all requests of a second arrive in its first 0.3 s, and pages are read once a second: the swing
zeros_one   one engine reports zeros for 18 s, during which 400 requests arrive in 10 s: the busiest engine's
zeros_all   the same with zeros from every engine
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, Literal

from bench import swing
from bench.fault_cases import set_fault, turns
from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.load import LoadRun
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.swing import Point
    from warmroute.demo.cluster import Cluster
    from warmroute.demo.report import Target
    from warmroute.simulator.workload import Turn

Steer = Literal["weights", "picks"]
CASES: Final = ("jitter", "step", "period", "zeros_one", "zeros_all")
ENGINES: Final = 4
ENGINE: Final = EngineSettings(speed_up=0.5, blocks=1024, max_num_seqs=64)
"""Slow and small, so that a load which the host bears keeps many requests there at once."""
_OVERRIDES: Final = {"limits": {"drain_seconds": 0.5}}
_HEADERS: Final[Mapping[Steer, Mapping[str, str]]] = {
    "weights": {"content-type": "text/plain"},
    "picks": {},
}
_RATE: Final = 30.0
_STEP_RATE: Final = 12.0
"""What comes to one engine past Envoy: more than it gets of the rest."""
_ZEROS_REQUESTS: Final = 400
_ZEROS_SECONDS, _ZEROS_SENT_SECONDS = 18.0, 10.0
_BURST_SECONDS: Final = 0.3
_WARM_UP_SECONDS: Final = 15.0
_PUSH_SECONDS: Final = 10.0
_RESTED: Final = 0.25
"""Around where the struck engine's weight settles: requests come at random, so it never stands still."""
_STILL: Final = 0.2
"""Of the fair share: one move of twice the dead band. A lesser swing is none."""
_GROWTH: Final = 1.5
"""Of the swing from the first third to the last: requests come at random, so no two are alike."""


class Watched:
    """One deployment with its load, and its weights over time."""

    def __init__(self, cluster: Cluster, steer: Steer) -> None:
        self.cluster = cluster
        self.load = LoadRun(cluster.address, ENGINE.model, headers=_HEADERS[steer])
        self.points: list[Point] = []

    async def until(self, seconds: float) -> None:
        """Wait until so long after the start of the load."""
        await asyncio.sleep(max(0.0, seconds - self.load.elapsed_seconds))

    async def updates(self) -> int:
        """How often weights were published up to now.

        Raises:
            BenchError: the service does not report it.
        """
        count = (await self.cluster.status()).get("weight_updates")
        if count is None:
            raise BenchError("warmroute serve reports no weight_updates")
        return int(count)

    async def received(self) -> Counter[str]:
        """Return the number of requests that reached each engine."""
        pages = {
            address: await self.cluster.get_json(address, "/admin/seen") for address in self.cluster.engines
        }
        return Counter({address: page["requests"] for address, page in pages.items() if page})

    async def set_faults(self, fault: Mapping[str, Any], count: int = ENGINES) -> None:
        """Bring a fault to the first `count` engines."""
        await asyncio.gather(*(set_fault(address, fault) for address in self.cluster.engines[:count]))


async def measure(case: str, steer: Steer, scale: float, seed: int) -> dict[str, Any]:
    """Run one case and return its figures.

    Raises:
        BenchError: a part does not start or obey.
    """
    async with running_cluster(ClusterSettings("serve", ENGINES, ENGINE, _OVERRIDES)) as cluster:
        watched = Watched(cluster, steer)
        meter = CpuMeter()
        recording = asyncio.create_task(swing.record(cluster, watched.load, watched.points))
        try:
            if case == "jitter":
                figures = await _jitter(watched, scale, seed)
            elif case == "step":
                figures = await _step(watched, scale, seed)
            elif case == "period":
                figures = await _period(watched, scale, seed)
            else:
                figures = await _zeros(watched, scale, seed, ENGINES if case == "zeros_all" else 1)
        finally:
            recording.cancel()
        failures = sum(outcome.failure is not None for outcome in watched.load.outcomes)
        return {**figures, "failures": failures, "cpu_used_ratio": meter.used_ratio()}


async def _jitter(watched: Watched, scale: float, seed: int) -> dict[str, Any]:
    start, seconds = _WARM_UP_SECONDS * scale, 60.0 * scale
    running = asyncio.create_task(watched.load.run(turns(seed, _RATE, start + seconds)))
    await watched.until(start)
    await watched.set_faults({"kind": "jitter", "ratio": 0.1})
    before = await watched.updates()
    await watched.until(start + seconds)
    updates = await watched.updates() - before
    await running
    return {
        "seconds": seconds,
        "updates": updates,
        "swing": swing.swing(swing.between(watched.points, start, start + seconds)),
    }


async def _step(watched: Watched, scale: float, seed: int) -> dict[str, Any]:
    start, seconds = _WARM_UP_SECONDS * scale, 60.0 * scale
    aside = LoadRun(watched.cluster.engines[0], ENGINE.model)
    running = asyncio.create_task(watched.load.run(turns(seed, _RATE, start + seconds)))
    await watched.until(start)
    await aside.run(turns(seed + 1, _STEP_RATE, seconds))
    await running
    points = swing.between(watched.points, start, start + seconds)
    later = [point.shares[0] for point in points[len(points) // 2 :]]
    earlier = [point.shares[0] for point in swing.between(watched.points, 0.7 * start, start)]
    if not later or not earlier:
        return {"share_before": None, "share_settled": None, "overshoots": None}
    before, settled = fmean(earlier), fmean(later)
    rested = swing.settled_after(points, 0, settled, _RESTED)
    return {
        "share_before": before,
        "share_settled": settled,
        "overshoots": swing.overshoots([point.shares[0] for point in points], before, settled),
        "furthest_below_ratio": 1.0 - min(point.shares[0] for point in points) / settled,
        "settled_seconds": None if rested is None else rested - start,
        "swing_when_settled": swing.swing(points[len(points) // 2 :]),
    }


def bursts(seed: int, rate: float, seconds: float) -> list[Turn]:
    """Requests as `turns`, with those of each second pressed into its first part."""
    pressed = []
    for turn in turns(seed, rate, seconds):
        whole, part = divmod(turn.at_seconds, 1.0)
        pressed.append(replace(turn, at_seconds=whole + part * _BURST_SECONDS))
    return pressed


async def _period(watched: Watched, scale: float, seed: int) -> dict[str, Any]:
    start, seconds = _WARM_UP_SECONDS * scale, 60.0 * scale
    await watched.load.run(bursts(seed, _RATE, start + seconds))
    third = seconds / 3.0
    swings = [
        swing.swing(swing.between(watched.points, start + number * third, start + (number + 1) * third))
        for number in range(3)
    ]
    first, last = swings[0], swings[2]
    growth = None if first is None or last is None else last / max(first, _STILL)
    return {"swings": swings, "swing_growth": growth, "updates": await watched.updates()}


async def _zeros(watched: Watched, scale: float, seed: int, count: int) -> dict[str, Any]:
    faulty = _ZEROS_SECONDS * scale
    sent = _ZEROS_SENT_SECONDS * scale
    start = _WARM_UP_SECONDS * scale
    begins = start + (faulty - sent) / 2.0
    plan = turns(seed, _RATE / 2.0, begins)
    rate = _ZEROS_REQUESTS / _ZEROS_SENT_SECONDS
    random = Random(seed)
    later = [
        replace(turn, at_seconds=begins + random.uniform(0.0, sent))
        for turn in turns(seed + 1, 1.5 * rate, sent)[: round(rate * sent)]
    ]
    plan += sorted(later, key=lambda turn: turn.at_seconds)
    running = asyncio.create_task(watched.load.run(plan))
    await watched.until(start)
    await watched.set_faults({"kind": "zeros"}, count)
    await watched.until(begins)
    before = await watched.received()
    await watched.until(start + faulty)
    await watched.set_faults({"kind": "none"}, count)
    await running
    arrived = await watched.received()
    arrived.subtract(before)
    total = sum(arrived.values())
    fair = total / ENGINES
    points = swing.between(watched.points, begins, begins + sent)
    return {
        "requests": total,
        "seen": [arrived[address] for address in watched.cluster.engines],
        "most_over_fair": report.ratio(max(arrived.values(), default=0), fair),
        "most_weight_over_fair": max((max(point.shares) for point in points), default=None),
    }


def targets_of(results: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    """Hold the figures against their targets."""
    targets = []
    for case, figures in results.items():
        if case == "jitter":
            most = max(1.0, figures["seconds"] / _PUSH_SECONDS)
            targets.append(report.at_most("jitter_updates", figures["updates"], most))
        elif case == "step":
            targets.append(report.at_most("step_overshoots", figures["overshoots"], 1))
            # A weight that does not move has nothing to overshoot.
            moved = report.ratio(figures["share_settled"], figures["share_before"])
            targets.append(report.at_most("step_settled_over_before", moved, 0.9))
        elif case == "period":
            targets.append(report.at_most("period_swing_growth", figures["swing_growth"], _GROWTH))
        else:
            targets.append(report.at_most(f"{case}_most_over_fair", figures["most_over_fair"], 2.0))
        targets.append(report.exactly(f"{case}_failures", figures["failures"], 0))
    return targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.stability", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--steer", choices=("weights", "picks"), default="weights", help="default weights")
    parser.add_argument("--scale", type=float, default=1.0, help="of all times, to look quickly (default 1)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - set(CASES):
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    results: dict[str, dict[str, Any]] = {}
    for case in CASES:
        if not args.names or case in args.names:
            report.progress(f"-- {case}, by {args.steer}")
            results[case] = processes.run(measure(case, args.steer, args.scale, args.seed))
            report.progress(f"   {results[case]}")
    return report.finish({"steer": args.steer, **results}, targets_of(results), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
