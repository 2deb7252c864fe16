"""An engine hangs, crawls, fails, dies or fills up: the traffic that it still gets, and its recovery.

Each fault has its own deployment: simulated engines behind Envoy and `warmroute serve`, under a steady load
of small prompts without warm engines. Half of them get picks; half go by weights alone, because their content
type keeps them from ext_proc. One engine is faulty for a while and then heals. Shares are of the requests
that Envoy sent, retries included, and of those that reached the engines. Recovery is judged by the engines
that answered later requests, with and without picks apart, because either may be late. Rates of answers are
per planned request: the arrivals of two spans of some seconds differ by 10 % and more.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from bench.fault_cases import CASES, STRUCK, Case, Strike, strike, turns
from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.load import LoadRun
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target
    from warmroute.demo.stats import Outcome

ENGINES: Final = 4
ENGINE: Final = EngineSettings(speed_up=3.0, blocks=8192, max_num_seqs=64)
OVERRIDES: Final = {"limits": {"drain_seconds": 0.5}}
_WEIGHTED: Final = {"content-type": "text/plain"}
"""What is no JSON is not read by ext_proc, so weights decide; the engine does not mind."""

_WARM_UP_SECONDS: Final = 4.0
_WATCH_SECONDS: Final = 10.0
_LATE_SECONDS: Final = 20.0
"""The load is planned for so much longer than a case should take, and stops when it is over."""
_WINDOW_SECONDS: Final = 1.5
_WINDOW_STEP_SECONDS: Final = 0.1
_FAIR_AGAIN: Final = 0.8
"""Part of the fair share that a window of few requests can still distinguish."""

_FROZEN_SHARE: Final = 0.02
_SLOW_SHARE: Final = 0.6 / ENGINES
"""Of requests by weights, to an engine ten times slower: 0.6 of the fair share, on the way down too."""
_HEALTHY_RATE: Final = 0.9
_HALF_SHARE_SECONDS: Final = 5.0


async def measure(case: Case, rate: float, fault_seconds: float, seed: int) -> dict[str, Any]:
    """Run one case and return its figures.

    Raises:
        BenchError: a part does not start, obey or come back.
    """
    lasts = _WARM_UP_SECONDS + case.steady_seconds + (case.seconds or fault_seconds)
    lasts += _WATCH_SECONDS + _LATE_SECONDS
    async with running_cluster(ClusterSettings("serve", ENGINES, ENGINE, OVERRIDES)) as cluster:
        picked = LoadRun(cluster.address, ENGINE.model)
        weighted = LoadRun(cluster.address, ENGINE.model, headers=_WEIGHTED)
        runs = (picked, weighted)
        async with asyncio.TaskGroup() as group:
            for number, run in enumerate(runs):
                group.create_task(run.run(turns(seed + number, rate / 2, lasts)))
            await asyncio.sleep(_WARM_UP_SECONDS)
            struck = await strike(cluster, picked, case, fault_seconds, _WATCH_SECONDS)
            for run in runs:
                run.stop()
        return figures(struck, picked.outcomes, weighted.outcomes)


def figures(struck: Strike, picked: Sequence[Outcome], weighted: Sequence[Outcome]) -> dict[str, Any]:
    """Work out what a case came to. None is unknown, or never."""
    outcomes = [*picked, *weighted]
    began, ended = struck.struck_at, struck.healed_at
    within = [o for o in outcomes if o.ended_seconds >= began and o.at_seconds < ended]
    later = [o for o in within if o.at_seconds > began + 3.0]
    moved, healed = struck.moved, struck.healed
    after = _after(outcomes, struck)
    fair = 1.0 / ENGINES
    return {
        "fault": struck.case.name,
        "requests": len(within),
        "failures": dict(Counter(o.failure for o in within if o.failure)),
        "failures_after_3s": dict(Counter(o.failure for o in later if o.failure)),
        "failures_after_recovery": dict(Counter(o.failure for o in after if o.failure)),
        "share_after_3s": _share(moved.total, healed.total),
        "picked_share_after_3s": _share(moved.picked, healed.picked),
        "weighted_share_after_3s": _share(moved.unpicked, healed.unpicked),
        "healthy_rate_ratio": report.ratio(
            healthy_rate(outcomes, struck.address, began, ended),
            healthy_rate(outcomes, struck.address, struck.began_at, began),
        ),
        "e2e_p99_seconds": percentile([o.e2e_seconds for o in later if o.failure is None], 0.99),
        "half_share_again_seconds": again(after, struck.address, ended, fair / 2),
        "picked_half_share_again_seconds": again(_after(picked, struck), struck.address, ended, fair / 2),
        "weighted_half_share_again_seconds": again(_after(weighted, struck), struck.address, ended, fair / 2),
        "fair_share_again_seconds": again(after, struck.address, ended, fair * _FAIR_AGAIN),
        "least_trust_ratio": struck.least_trust,
        "marked_unhealthy": struck.marked,
    }


def _after(outcomes: Sequence[Outcome], struck: Strike) -> list[Outcome]:
    return [o for o in outcomes if struck.healed_at <= o.at_seconds < struck.ended_at]


def _share(before: Sequence[int] | None, after: Sequence[int] | None) -> float | None:
    if before is None or after is None:
        return None
    # A host that has left and come back counts from 0 again.
    grown = [then - now if then >= now else then for now, then in zip(before, after, strict=True)]
    return report.ratio(grown[STRUCK], sum(grown))


def healthy_rate(outcomes: Sequence[Outcome], struck: str, since: float, until: float) -> float | None:
    """Whole answers of the engines that are not struck, for each request planned in the same time."""
    good = sum(
        o.failure is None and o.served not in {None, struck} and since <= o.ended_seconds < until
        for o in outcomes
    )
    return report.ratio(good, sum(since <= o.at_seconds < until for o in outcomes))


def again(outcomes: Sequence[Outcome], address: str, healed_at: float, share: float) -> float | None:
    """Seconds from the recovery to the first window in which the engine answers this share of requests.

    A request counts by its start. None: it never did.
    """
    ordered = sorted(outcomes, key=lambda outcome: outcome.at_seconds)
    if not ordered:
        return None
    step = 0
    while (since := healed_at + step * _WINDOW_STEP_SECONDS) + _WINDOW_SECONDS <= ordered[-1].at_seconds:
        window = [o for o in ordered if since <= o.at_seconds < since + _WINDOW_SECONDS]
        served = sum(o.failure is None and o.served == address for o in window)
        if window and served >= share * len(window):
            return since - healed_at
        step += 1
    return None


def targets_of(results: Sequence[dict[str, Any]]) -> list[Target]:
    """Hold the figures against their targets."""
    targets = []
    for result in results:
        name = result["fault"]
        if name == "frozen":
            targets.append(report.at_most(f"{name}_share_after_3s", result["share_after_3s"], _FROZEN_SHARE))
        if name == "slow_x10":
            figure = "weighted_share_after_3s"
            targets.append(report.at_most(f"{name}_{figure}", result[figure], _SLOW_SHARE))
        if name == "status_429":
            # One that refuses what its peers answer loses trust, and so its share; it is not marked for it.
            targets.append(report.exactly(f"{name}_marked_unhealthy", int(result["marked_unhealthy"]), 0))
        rate = result["healthy_rate_ratio"]
        targets.append(report.at_least(f"{name}_healthy_rate_ratio", rate, _HEALTHY_RATE))
        for kind in ("picked_", "weighted_"):
            figure = f"{kind}half_share_again_seconds"
            targets.append(report.at_most(f"{name}_{figure}", result[figure], _HALF_SHARE_SECONDS))
    return targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="FAULT", help=f"of {', '.join(names)}; default: all")
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second (default 60)")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="of faults without a length of their own (default 10)"
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    if unknown := set(args.names) - set(names):
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    results = []
    for case in CASES:
        if not args.names or case.name in args.names:
            report.progress(f"-- {case.name}: {args.rate:g} requests a second")
            results.append(processes.run(measure(case, args.rate, args.seconds, args.seed)))
            report.progress(f"   {results[-1]}")
    return report.finish({"faults": results}, targets_of(results), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
