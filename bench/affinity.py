"""Hit ratio and balance with one and several ext_proc workers, on real prompts, compared with the ideal.

Three workloads run through the real Envoy onto simulated engines: agents' conversations of many turns, one
hot system prompt, and prompts with nothing in common. The bench reports for each number of workers

- the hit ratio: prompt tokens that the engines counted as cached (/admin/seen), next to the ideal of one
  engine with an endless cache;
- the busiest engine's requests over the mean of all;
- times to first token and to the end.

Each workload also runs on Envoy alone with least_request, which is the reference for `no_reuse`. If a Valkey
or Redis server is installed, several workers also run with a shared index.

The hot system prompt also meets fast engines at several rates, from idle to busy, with one worker. It should
spread to as many engines as its load needs: while requests do not overlap, one engine is enough and nothing
waits. So these figures have no target: balance, times, and least_request's.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.affinity_run import ALONE, ENGINE, Plan, one_run
from bench.prompts import WORKLOADS, ideal
from testing.stream_server import server_binary
from warmroute.demo import processes, report
from warmroute.demo.processes import BenchError
from warmroute.demo.stats import percentile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.affinity_run import Run
    from bench.prompts import WorkloadName
    from warmroute.demo.report import Target

_POINTS: Final = 0.05
_MOST_OVER_MEAN: Final = 1.5
_NO_WORSE: Final = 1.1
"""Two runs of the same system differ by about a tenth on a host that is shared."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run gave. None is unknown."""

    workload: WorkloadName
    router: str
    workers: int | None
    shared: bool
    requests: int
    failures: int
    hit_ratio: float | None
    ideal_hit_ratio: float | None
    busiest_over_mean: float | None
    engines_requests: tuple[int, ...]
    ttft_p50_seconds: float | None
    ttft_p90_seconds: float | None
    e2e_p50_seconds: float | None
    e2e_p90_seconds: float | None
    rate: float | None
    """Requests a second on fast engines; None: the workload's usual drive."""
    host_cpu_used_ratio: float | None
    """Near 1 the host, not the engines' model, sets the times."""


async def measure(plan: Plan, args: argparse.Namespace) -> Figures:
    """Run one workload on fresh deployments, as often as its noise asks for.

    Raises:
        BenchError: a part did not start.
    """
    runs = [
        await one_run(
            plan, engines=args.engines, seconds=args.seconds, load=args.load, seed=args.seed + number
        )
        for number in range(plan.drive.repeats * args.rounds)
    ]
    return figures(plan, runs)


def figures(plan: Plan, runs: Sequence[Run]) -> Figures:
    """Work out the figures of all runs of a plan together."""
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    good = [outcome for outcome in outcomes if outcome.failure is None]
    ttfts = [outcome.ttft_seconds for outcome in good if outcome.ttft_seconds is not None]
    e2es = [outcome.e2e_seconds for outcome in good]
    counted = [engine for run in runs for engine in run.engine_counts]
    ideals = [ideal(run.turns, ENGINE.block_tokens) for run in runs]
    requests = [
        sum(engine.get("requests", 0) for engine in same)
        for same in zip(*(run.engine_counts for run in runs), strict=True)
    ]
    cpus = [run.cpu_used for run in runs if run.cpu_used is not None]
    return Figures(
        workload=plan.workload,
        router=ALONE if plan.workers is None else "warmroute",
        workers=plan.workers,
        shared=plan.shared,
        requests=len(outcomes),
        failures=len(outcomes) - len(good),
        hit_ratio=report.ratio(
            sum(engine.get("cached_tokens", 0) for engine in counted),
            sum(engine.get("prompt_tokens", 0) for engine in counted),
        ),
        ideal_hit_ratio=report.ratio(
            sum(block_share.cached_tokens for block_share in ideals),
            sum(block_share.prompt_tokens for block_share in ideals),
        ),
        busiest_over_mean=report.ratio(max(requests) * len(requests), sum(requests)),
        engines_requests=tuple(requests),
        ttft_p50_seconds=percentile(ttfts, 0.5),
        ttft_p90_seconds=percentile(ttfts, 0.9),
        e2e_p50_seconds=percentile(e2es, 0.5),
        e2e_p90_seconds=percentile(e2es, 0.9),
        rate=plan.rate,
        host_cpu_used_ratio=max(cpus, default=None),
    )


def targets_of(runs: Sequence[Figures]) -> list[Target]:
    """Hold the figures against their targets."""
    targets = [report.exactly("failures", sum(run.failures for run in runs), 0)]
    by_plan = {(run.workload, run.workers): run for run in runs if not run.shared and run.rate is None}
    for run in runs:
        if run.workers is None or run.rate is not None:
            continue
        name = f"{run.workload}_{run.workers}_workers{'_shared' if run.shared else ''}"
        one, alone = by_plan.get((run.workload, 1)), by_plan.get((run.workload, None))
        if run.workload == "no_reuse":
            if alone is not None:
                targets += list(_no_worse(name, run, alone))
            continue
        if run.workers > 1 and one is not None:
            targets.append(report.at_most(f"{name}_hit_ratio_below_one", _below(run, one), _POINTS))
        if run.workload == "shared_system_prompt":
            targets.append(
                report.at_most(f"{name}_busiest_over_mean", run.busiest_over_mean, _MOST_OVER_MEAN)
            )
    return targets


def _below(run: Figures, one: Figures) -> float | None:
    if run.hit_ratio is None or one.hit_ratio is None:
        return None
    return one.hit_ratio - run.hit_ratio


def _no_worse(name: str, run: Figures, alone: Figures) -> Iterator[Target]:
    ttft = report.ratio(run.ttft_p90_seconds, alone.ttft_p90_seconds)
    yield report.at_most(f"{name}_ttft_p90_over_least_request", ttft, _NO_WORSE)
    e2e = report.ratio(run.e2e_p90_seconds, alone.e2e_p90_seconds)
    yield report.at_most(f"{name}_e2e_p90_over_least_request", e2e, _NO_WORSE)


async def compare(args: argparse.Namespace) -> list[Figures]:
    """Run everything that the options ask for.

    Raises:
        BenchError: a part did not start.
    """
    runs = []
    for plan in plans(args):
        run = await measure(plan, args)
        report.progress(line(run))
        runs.append(run)
    return runs


def plans(args: argparse.Namespace) -> Iterator[Plan]:
    """Yield every run; there is nothing to share for one worker, or without reuse."""
    for workload in args.workloads:
        for workers in (None, *args.workers):
            yield Plan(workload, workers)
            if args.shared and workers is not None and workers > 1 and workload != "no_reuse":
                yield Plan(workload, workers, shared=True)
    for rate in args.hot_rates if "shared_system_prompt" in args.workloads else ():
        for one in (None, 1):
            yield Plan("shared_system_prompt", one, rate=rate)


def can_share() -> bool:
    """Whether there is a server to share through."""
    try:
        server_binary()
    except BenchError:
        return False
    return importlib.util.find_spec("redis") is not None


def line(run: Figures) -> str:
    """One run for people."""
    who = run.router if run.workers is None else f"{run.workers} {'shared' if run.shared else 'workers'}"
    name = run.workload if run.rate is None else f"{run.workload[:13]} {run.rate:g}/s"
    figures = (
        ("hits", run.hit_ratio),
        ("ideal", run.ideal_hit_ratio),
        ("busiest/mean", run.busiest_over_mean),
        ("ttft p50", run.ttft_p50_seconds),
        ("p90", run.ttft_p90_seconds),
        ("e2e p90", run.e2e_p90_seconds),
        ("cpu", run.host_cpu_used_ratio),
    )
    columns = "  ".join(f"{name} {'?' if value is None else format(value, '.3f')}" for name, value in figures)
    return f"{name:21} {who:14} {run.requests:5} requests  {columns}"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bench's options."""
    parser.add_argument("--workers", type=_numbers, default=(1, 2, 4), help="default 1,2,4")
    parser.add_argument("--workloads", type=_names, default=WORKLOADS, help=f"of {','.join(WORKLOADS)}")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="length of each run, on engines of speed 1 (default 15)"
    )
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--load", type=float, default=1.0, help="factor of the usual rates (default 1)")
    parser.add_argument(
        "--shared",
        action=argparse.BooleanOptionalAction,
        default=can_share(),
        help="also with a shared index (default: if a Valkey or Redis server is installed)",
    )
    parser.add_argument(
        "--hot-rates",
        type=_rates,
        default=(10.0, 30.0, 80.0, 160.0),
        help="of the hot system prompt on fast engines; empty: none (default 10,30,80,160)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        choices=range(1, 101),
        default=1,
        metavar="N",
        help="so many times the requests, as tails of times need many (default 1)",
    )
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.affinity", description=__doc__)
    arguments(parser)
    args = parser.parse_args(argv)
    runs = processes.run(compare(args))
    result: dict[str, Any] = {
        "engines": args.engines,
        "seconds": args.seconds,
        "runs": [asdict(run) for run in runs],
    }
    return report.finish(result, targets_of(runs), as_json=args.json)


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if all(part.isascii() and part.isdigit() and 1 <= int(part) <= 64 for part in parts):
        return tuple(int(part) for part in parts)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers from 1 to 64, with commas between")


def _rates(text: str) -> tuple[float, ...]:
    parts = text.split(",") if text else []
    if all(part.isascii() and part.isdigit() and 1 <= int(part) <= 1000 for part in parts):
        return tuple(float(part) for part in parts)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: numbers from 1 to 1,000, with commas between")


def _names(text: str) -> tuple[WorkloadName, ...]:
    names = text.split(",")
    if set(names) <= set(WORKLOADS):
        return tuple(name for name in WORKLOADS if name in names)
    raise argparse.ArgumentTypeError(f"{text!r}; allowed: of {','.join(WORKLOADS)}")


if __name__ == "__main__":
    sys.exit(report.command(main))
