"""A heterogeneous fleet, a full one and a homogeneous one: the picks, and their cost for others.

Through the real Envoy onto simulated engines:

- slow: one of four engines is four times as slow as the others, under prompts with nothing in common. Its
  share of the requests and its times, next to Envoy alone with least_request, which evens out requests in
  flight;
- admission: more requests than two small engines can take, every third one of a low priority. With
  the setting, only those are refused, with 429, while both engines are past their limit;
- alike: three equal engines serve six short prompts and a long one, under six system prompts, at little load
  and at half of their capacity. The figure: the busiest engine's requests over the mean.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict, dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from bench.affinity_run import ALONE, ENGINE, OVERRIDES
from bench.fault_cases import STRUCK, set_fault
from bench.prompts import prompts
from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.load import LoadRun
from warmroute.demo.stats import percentile
from warmroute.simulator.workload import Message, Turn, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmroute.demo.report import Target
    from warmroute.demo.stats import Outcome

ENGINES: Final = 4
FACTOR: Final = 4.0
RATE: Final = 15.0
"""Requests a second: most of what such a fleet can answer."""
SMALL: Final = EngineSettings(max_num_seqs=4)
"""It queues what is more than four requests."""
LIMIT: Final = {"most_queue": 3, "priority_header": "x-priority"}
USUAL_RATE: Final = 6.0
LOW_RATE: Final = 3.0
_SHARE_OVER: Final = 1.5
_NO_WORSE: Final = 1.1
_REFUSED: Final = "status 429"
ALIKE_ENGINES: Final = 3
ALIKE_SYSTEMS: Final = 6
LITTLE_RATE: Final = 8.0
HALF_RATE: Final = 24.0
HALF_ENGINE: Final = EngineSettings(blocks=43_750, max_num_seqs=64, speed_up=0.25)
_LITTLE_MOST: Final = 1.5
_HALF_MOST: Final = 1.15


@dataclass(frozen=True, slots=True)
class Slow:
    """What one router made of a slow engine among others. None is unknown."""

    router: str
    requests: int
    failures: int
    slow_share: float | None
    ttft_p90_seconds: float | None
    e2e_p50_seconds: float | None
    e2e_p90_seconds: float | None


@dataclass(frozen=True, slots=True)
class Refused:
    """What became of requests of two priorities on a fleet that is full."""

    usual: int
    usual_failures: int
    low: int
    low_refused: int
    low_failures: int
    """Of those that were not refused."""


async def slow(router: str, seconds: float, seed: int) -> Slow:
    """Run prompts with nothing in common on a fleet with a slow engine.

    Raises:
        BenchError: a part did not start.
    """
    settings = (
        ClusterSettings("envoy", ENGINES, ENGINE, OVERRIDES, alone=ALONE)
        if router == ALONE
        else ClusterSettings("serve", ENGINES, ENGINE, OVERRIDES)
    )
    turns = prompts("no_reuse", seed=seed, seconds=seconds, rate=RATE)
    async with running_cluster(settings) as cluster:
        await set_fault(cluster.engines[STRUCK], {"kind": "slow", "factor": FACTOR})
        outcomes = await LoadRun(cluster.address, ENGINE.model).run(turns)
        pages = [await cluster.get_json(address, "/admin/seen") or {} for address in cluster.engines]
    return slow_of(router, outcomes, pages)


def slow_of(router: str, outcomes: Sequence[Outcome], pages: Sequence[Mapping[str, int]]) -> Slow:
    """Work out the figures of a run."""
    good = [outcome for outcome in outcomes if outcome.failure is None]
    counts = [engine.get("requests", 0) for engine in pages]
    ttfts = [outcome.ttft_seconds for outcome in good if outcome.ttft_seconds is not None]
    e2es = [outcome.e2e_seconds for outcome in good]
    return Slow(
        router,
        len(outcomes),
        len(outcomes) - len(good),
        report.ratio(counts[STRUCK], sum(counts)),
        percentile(ttfts, 0.9),
        percentile(e2es, 0.5),
        percentile(e2es, 0.9),
    )


def first_prompts(random: Random) -> list[Turn]:
    """What a new user types first: six short prompts and a long one, in three seconds."""
    short = [Turn(n * 0.4, 0, f"hi {n}", (Message("user", "hi"),), 16) for n in range(6)]
    return [*short, Turn(2.4, 0, "long", (Message("user", words(random, 3_000)),), 32)]


def system_prompts(random: Random, rate: float, seconds: float) -> list[Turn]:
    """Requests behind one of a few system prompts each, from the sixth second on."""
    systems = [Message("system", words(random, 900)) for _ in range(ALIKE_SYSTEMS)]
    turns, at = list[Turn](), 5.0
    while (at := at + random.expovariate(rate)) < 5.0 + seconds:
        question = Message("user", words(random, random.randint(10, 40)))
        turns.append(Turn(at, 0, f"{len(turns)}", (random.choice(systems), question), random.randint(16, 96)))
    return turns


async def alike(engine: EngineSettings, rate: float, seconds: float, seed: int) -> list[int]:
    """Return how many requests each engine got.

    Raises:
        BenchError: a part did not start.
    """
    random = Random(seed)
    turns = [*first_prompts(random), *system_prompts(random, rate, seconds)]
    async with running_cluster(ClusterSettings("serve", ALIKE_ENGINES, engine, OVERRIDES)) as cluster:
        await LoadRun(cluster.address, engine.model).run(turns)
        pages = [await cluster.get_json(address, "/admin/seen") or {} for address in cluster.engines]
    return [page.get("requests", 0) for page in pages]


def busiest_over_mean(counts: Sequence[int]) -> float | None:
    """Return how many times the mean the busiest got; None of nothing."""
    return report.ratio(max(counts) * len(counts), sum(counts))


async def admission(seconds: float, seed: int) -> Refused:
    """Run more than the engines can take, of two priorities.

    Raises:
        BenchError: a part did not start.
    """
    overrides = {**OVERRIDES, "ext_proc": {"pick": {"admission": LIMIT}}}
    usual = prompts("no_reuse", seed=seed, seconds=seconds, rate=USUAL_RATE)
    low = prompts("no_reuse", seed=seed + 1, seconds=seconds, rate=LOW_RATE)
    async with running_cluster(ClusterSettings("serve", 2, SMALL, overrides)) as cluster:
        first = LoadRun(cluster.address, SMALL.model)
        second = LoadRun(cluster.address, SMALL.model, headers={"x-priority": "-1"})
        return refused_of(*await asyncio.gather(first.run(usual), second.run(low)))


def refused_of(usual: Sequence[Outcome], low: Sequence[Outcome]) -> Refused:
    """Count the outcomes by priority."""
    refused = sum(outcome.failure == _REFUSED for outcome in low)
    failed = sum(outcome.failure is not None for outcome in low)
    return Refused(
        len(usual),
        sum(outcome.failure is not None for outcome in usual),
        len(low),
        refused,
        failed - refused,
    )


def targets_of(
    alone: Slow, ours: Slow, full: Refused, little: Sequence[int], half: Sequence[int]
) -> list[Target]:
    """Hold the figures against their targets."""
    share = report.ratio(ours.slow_share, alone.slow_share)
    ttft = report.ratio(ours.ttft_p90_seconds, alone.ttft_p90_seconds)
    e2e = report.ratio(ours.e2e_p90_seconds, alone.e2e_p90_seconds)
    return [
        report.exactly("slow_failures", ours.failures, 0),
        report.at_most("slow_share_over_least_request", share, _SHARE_OVER),
        report.at_most("slow_ttft_p90_over_least_request", ttft, _NO_WORSE),
        report.at_most("slow_e2e_p90_over_least_request", e2e, _NO_WORSE),
        report.exactly("admission_usual_failures", full.usual_failures, 0),
        report.exactly("admission_low_failures", full.low_failures, 0),
        report.at_least("admission_low_refused", full.low_refused, 1),
        report.at_most("alike_busiest_over_mean_at_little_load", busiest_over_mean(little), _LITTLE_MOST),
        report.at_most("alike_busiest_over_mean_at_half_load", busiest_over_mean(half), _HALF_MOST),
    ]


async def compare(seconds: float, seed: int) -> tuple[Slow, Slow, Refused, list[int], list[int]]:
    """Run everything.

    Raises:
        BenchError: a part did not start.
    """
    alone = await slow(ALONE, seconds, seed)
    report.progress(f"slow       {alone}")
    ours = await slow("warmroute", seconds, seed)
    report.progress(f"slow       {ours}")
    full = await admission(seconds, seed)
    report.progress(f"admission  {full}")
    little = await alike(ENGINE, LITTLE_RATE, seconds, seed)
    report.progress(f"alike      {little} at little load")
    half = await alike(HALF_ENGINE, HALF_RATE, 2 * seconds, seed)
    report.progress(f"alike      {half} at half load")
    return alone, ours, full, little, half


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bench's options."""
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run (default 20)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.uneven",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments(parser)
    args = parser.parse_args(argv)
    alone, ours, full, little, half = processes.run(compare(args.seconds, args.seed))
    result: dict[str, Any] = {
        "slow": [asdict(alone), asdict(ours)],
        "admission": asdict(full),
        "alike": {"little_load": little, "half_load": half},
    }
    return report.finish(result, targets_of(alone, ours, full, little, half), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
