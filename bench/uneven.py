"""A fleet that is not alike, and one that is full: who is picked, and whom that costs anything.

Through the real Envoy onto simulated engines:

- slow: one of four engines is four times as slow as the others, under prompts with nothing in common. Its
  share of the requests and its times, beside least_request of Envoy alone, which evens out who is in flight;
- admission: more requests than two small engines can take, every third one of a low priority. Where the
  settings say so, those are refused while both are past their limit, with 429, and nobody else is.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from bench import processes, report
from bench.affinity_run import ALONE, ENGINE, OVERRIDES
from bench.cluster import ClusterSettings, EngineSettings, running_cluster
from bench.fault_cases import STRUCK, tell
from bench.load import LoadRun
from bench.prompts import prompts
from bench.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.report import Wanted
    from bench.stats import Outcome

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
        await tell(cluster.engines[STRUCK], {"kind": "slow", "factor": FACTOR})
        outcomes = await LoadRun(cluster.address, ENGINE.model).run(turns)
        seen = [await cluster.get_json(address, "/admin/seen") or {} for address in cluster.engines]
    return slow_of(router, outcomes, seen)


def slow_of(router: str, outcomes: Sequence[Outcome], seen: Sequence[Mapping[str, int]]) -> Slow:
    """Work out the figures of a run."""
    good = [outcome for outcome in outcomes if outcome.failure is None]
    counts = [engine.get("requests", 0) for engine in seen]
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
    """Count what became of whom."""
    refused = sum(outcome.failure == _REFUSED for outcome in low)
    failed = sum(outcome.failure is not None for outcome in low)
    return Refused(
        len(usual),
        sum(outcome.failure is not None for outcome in usual),
        len(low),
        refused,
        failed - refused,
    )


def wanted_of(alone: Slow, ours: Slow, full: Refused) -> list[Wanted]:
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
    ]


async def compare(seconds: float, seed: int) -> tuple[Slow, Slow, Refused]:
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
    return alone, ours, full


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bench's options."""
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each run (default 20)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def main(given: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status tells whether all targets are met."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.uneven",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    arguments(parser)
    args = parser.parse_args(given)
    alone, ours, full = processes.run(compare(args.seconds, args.seed))
    result: dict[str, Any] = {"slow": [asdict(alone), asdict(ours)], "admission": asdict(full)}
    return report.finish(result, wanted_of(alone, ours, full), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
