"""Kills and freezes ext_proc, xds_server and an engine under load, and counts the effect on requests."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from bench.strikes import FAULTS, Fault, Felt, baseline, felt, strike
from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.load import LoadRun
from warmroute.demo.stats import percentile
from warmroute.simulator.workload import Span, WorkloadSettings, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target
    from warmroute.demo.stats import Outcome

_WARM_UP_SECONDS: Final = 5.0
_SLOWER_SECONDS: Final = 1.0
_RESUME_SECONDS: Final = 5.0
_RESTART_SECONDS: Final = 30.0
"""The load is planned for at most this long for each return of a process, and stops when all is over."""

ENGINE: Final = EngineSettings(
    speed_up=3.0,  # an answer takes about 0.2 s: several are in flight on an engine when it is killed
    blocks=8192,  # nothing is evicted: this bench is about faults
    max_num_seqs=64,
)
OVERRIDES: Final = {
    "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.4},
    "limits": {"drain_seconds": 0.5},
}


async def outage(
    seconds: float, rate: float, seed: int
) -> tuple[list[Outcome], list[Fault], dict[str, Any] | None]:
    """Run the load and every fault; each lasts `seconds`, and is watched for as long after its end.

    Raises:
        BenchError: a part does not start or does not come back.
    """
    longest = _WARM_UP_SECONDS + len(FAULTS) * (2 * seconds + _RESTART_SECONDS)
    turns = workload(
        WorkloadSettings(
            seed=seed,
            duration_seconds=longest,
            rate_per_second=rate,
            tenants=8,
            system_prompt_tokens=Span(200, 400),
            turns=Span(1, 3),
            max_tokens=Span(40, 80),
        )
    )
    async with running_cluster(ClusterSettings("apart", 4, ENGINE, OVERRIDES)) as cluster:
        load = LoadRun(cluster.address, ENGINE.model, timeout_seconds=20.0)
        sending = asyncio.create_task(load.run(turns))
        try:
            report.progress(f"{rate:g} requests a second, warming up")
            await asyncio.sleep(_WARM_UP_SECONDS)
            faults = [
                await strike(cluster, load, target, kind, seconds, report.progress) for target, kind in FAULTS
            ]
            load.stop()
            await sending
        finally:
            sending.cancel()
        return load.outcomes, faults, await cluster.get_json(cluster.admin_address, "/api/v1/status")


def targets_of(result: dict[str, Any], all_felt: Sequence[Felt]) -> list[Target]:
    """Hold the figures against their targets."""
    usual = result["baseline"]["slowest_seconds"]
    targets = [report.exactly("failures_outside_faults", result["failures_outside_faults"], 0)]
    for entry in all_felt:
        name = entry.name
        if name == "engine_kill":
            later = entry.failures_of_later_requests
            targets.append(report.exactly(f"{name}_failures_of_later_requests", later, 0))
            targets.append(report.exactly(f"{name}_failures_elsewhere", entry.failures_elsewhere, 0))
        else:
            targets.append(report.exactly(f"{name}_failures", entry.failures, 0))
        slower = None if entry.slowest_seconds is None else entry.slowest_seconds - usual
        targets.append(report.at_most(f"{name}_slowest_over_baseline_seconds", slower, _SLOWER_SECONDS))
        picks, push = entry.picks_resumed_seconds, entry.push_resumed_seconds
        targets.append(report.at_most(f"{name}_picks_resumed_seconds", picks, _RESUME_SECONDS))
        targets.append(report.at_most(f"{name}_push_resumed_seconds", push, _RESUME_SECONDS))
    return targets


def result_of(outcomes: Sequence[Outcome], faults: Sequence[Fault]) -> tuple[dict[str, Any], list[Felt]]:
    """Return the object that `--json` prints, and what was felt of each fault."""
    began = faults[0].struck_at
    times = baseline(outcomes, began)
    all_felt = [felt(fault, outcomes) for fault in faults]
    failures = sum(o.failure is not None for o in outcomes)
    result = {
        "requests": len(outcomes),
        "failures": failures,
        "failures_outside_faults": failures - sum(entry.failures for entry in all_felt),
        "baseline": {
            "requests": len(times),
            "e2e_p99_seconds": percentile(times, 0.99),
            "slowest_seconds": max(times),
        },
        "faults": [entry.as_json() for entry in all_felt],
    }
    return result, all_felt


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.outage", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each fault (default 5)")
    parser.add_argument("--rate", type=float, default=50.0, help="requests a second (default 50)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    outcomes, faults, status = processes.run(outage(args.seconds, args.rate, args.seed))
    result, all_felt = result_of(outcomes, faults)
    targets = targets_of(result, all_felt)
    return report.finish({**result, "status": status}, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
