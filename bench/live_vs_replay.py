"""One workload twice: through the real Envoy in real time, and through replay, on the same engines.

Requests of agents' sessions, at fixed times, go to simulated engines that are slow enough for a small host:
by Envoy alone with round robin, and with Warmroute. Replay gets the same arrivals, texts and engine
parameters. A replay is worth believing as far as both give the same hit ratio; their times stand next to each
other.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench.workloads import agents, session_begins
from warmroute.demo import processes, report
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.load import LoadRun
from warmroute.demo.stats import percentile
from warmroute.replay.job import Job
from warmroute.replay.policies import POLICIES
from warmroute.replay.policies.policy import Plan
from warmroute.replay.run import replay
from warmroute.replay.trace import BYTES_PER_TOKEN, block_texts
from warmroute.simulator.workload import Message, Turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target
    from warmroute.replay.trace import Trace

ENGINES: Final = 4
CROWD: Final = 10.0
"""Factor on the rate at which sessions begin; within each, times are the trace's own."""
ENGINE: Final = EngineSettings(speed_up=0.75, blocks=2_500)
ROUTERS: Final = ("round_robin", "warmroute")
_POINTS: Final = 0.03


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of one run."""

    where: str
    """`live` or `replay`."""
    router: str
    requests: int
    failures: int
    hit_ratio: float | None
    ttft_p50_seconds: float | None
    ttft_p90_seconds: float | None
    e2e_p90_seconds: float | None
    host_cpu_used_ratio: float | None = None
    """Near 1 the host, not the engines' model, sets the times."""


def open_trace(requests: int) -> Trace:
    """Return agents' requests at fixed times, with text: the same for both sides."""
    trace = agents()
    begins = session_begins(trace.requests)
    texts: dict[int, str] = {}
    moved = []
    for number, (request, begin) in enumerate(zip(trace.requests, begins, strict=True)):
        text = "".join(block_texts(request.blocks, trace.block_tokens, texts))
        # What fills no block is the request's own.
        text += (f"{number:07x}-" * trace.block_tokens)[: request.prompt_tokens * BYTES_PER_TOKEN - len(text)]
        at = begin / CROWD + request.at - begin
        moved.append(request._replace(at=at, after=-1, gap=0.0, text=text))
    first = sorted(moved, key=lambda request: request.at)[:requests]
    return trace._replace(requests=tuple(first))


def replayed(trace: Trace, router: str, seed: int) -> Figures:
    """Replay in virtual time."""
    job = Job(router, speed_up=ENGINE.speed_up, kv_tokens=ENGINE.blocks * ENGINE.block_tokens)
    config = replace(job.engine(ENGINE.block_tokens), max_num_seqs=ENGINE.max_num_seqs)
    plan = Plan(config, seed)
    outcome = replay(trace, lambda engines: POLICIES[router](engines, plan), config, ENGINES)
    ttft, e2e = np.percentile(outcome.ttft, (50, 90)), np.percentile(outcome.e2e, 90)
    hits = outcome.cached_tokens.sum() / outcome.prompt_tokens.sum()
    return Figures(
        "replay", router, len(outcome.at), 0, float(hits), float(ttft[0]), float(ttft[1]), float(e2e)
    )


async def live(trace: Trace, router: str) -> Figures:
    """Send the same through the real Envoy.

    Raises:
        BenchError: a part did not start.
    """
    overrides = {"limits": {"drain_seconds": 0.5}}
    settings = ClusterSettings("envoy" if router == "round_robin" else "serve", ENGINES, ENGINE, overrides)
    turns = [
        Turn(request.at, 0, str(number), (Message("user", request.text or ""),), request.output_tokens)
        for number, request in enumerate(trace.requests)
    ]
    async with running_cluster(settings) as cluster:
        meter = CpuMeter()
        outcomes = await LoadRun(cluster.address, ENGINE.model).run(turns)
        used = meter.used_ratio()
    good = [outcome for outcome in outcomes if outcome.failure is None]
    ttfts = [outcome.ttft_seconds for outcome in good if outcome.ttft_seconds is not None]
    return Figures(
        "live",
        router,
        len(outcomes),
        len(outcomes) - len(good),
        report.ratio(
            sum(outcome.cached_tokens or 0 for outcome in good),
            sum(outcome.prompt_tokens or 0 for outcome in good),
        ),
        percentile(ttfts, 0.5),
        percentile(ttfts, 0.9),
        percentile([outcome.e2e_seconds for outcome in good], 0.9),
        used,
    )


def targets_of(runs: Sequence[Figures]) -> list[Target]:
    """Hold the figures against their targets."""
    by_place = {(run.where, run.router): run for run in runs}
    targets = [report.exactly("failures", sum(run.failures for run in runs), 0)]
    for router in ROUTERS:
        one, other = (by_place[where, router].hit_ratio for where in ("live", "replay"))
        apart = None if one is None or other is None else abs(one - other)
        targets.append(report.at_most(f"{router}_hit_ratio_live_from_replay", apart, _POINTS))
    return targets


def line(run: Figures) -> str:
    """One run for people, as a row of a Markdown table."""
    shares = (run.hit_ratio, run.host_cpu_used_ratio)
    times = (run.ttft_p50_seconds, run.ttft_p90_seconds, run.e2e_p90_seconds)
    hits, cpu = ("" if share is None else f"{share:.1%}" for share in shares)
    cells = [run.router, run.where, hits, *("" if time is None else f"{time:.3f}" for time in times), cpu]
    return f"| {' | '.join(cells)} |"


async def compare(args: argparse.Namespace) -> list[Figures]:
    """Run everything.

    Raises:
        BenchError: a part did not start.
    """
    trace = open_trace(args.requests)
    report.progress(
        "| router | where | hits | TTFT p50 | TTFT p90 | E2E p90 | host's CPU |\n" + "| --- " * 7 + "|"
    )
    runs = []
    for router in ROUTERS:
        for run in (await live(trace, router), replayed(trace, router, args.seed)):
            report.progress(line(run))
            runs.append(run)
    return runs


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.live_vs_replay", description=__doc__)
    parser.add_argument("--requests", type=int, default=402, help="default all 402: a minute each")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(argv)
    runs = processes.run(compare(args))
    result: dict[str, Any] = {"engines": ENGINES, "runs": [asdict(run) for run in runs]}
    return report.finish(result, targets_of(runs), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
