"""`warmroute replay`: a trace through our picks and other policies, on simulated engines in virtual time."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from dataclasses import replace
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from fleet.errors import WarmrouteError
from warmroute.cli.view.replay_table import figure_table, knee_table
from warmroute.replay import plot, sweep
from warmroute.replay.fault import NO_CANCELS, SLOW_FACTOR, cancels_of, check_faults, fault_of
from warmroute.replay.figures import Limits, figures, interval, over_seeds
from warmroute.replay.job import Job, begin_process, check_copies, check_fits, run_whole_job
from warmroute.replay.policies import POLICIES, REFERENCES
from warmroute.replay.trace import FORMATS, SAMPLE, read_trace
from warmroute.simulator.fits import fit_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from warmroute.replay.figures import Interval
    from warmroute.replay.run import Outcome
    from warmroute.replay.trace import Trace

T = TypeVar("T")

_POLICIES: Final = ("round_robin", "least_request", "warmroute")
_SAMPLE_RATE: Final = 2.0
"""At which the sample gives eight replicas a load that policies differ at."""


class _Range(NamedTuple):
    least: float
    largest: float


_COUNT: Final = _Range(1, 1e9)
_SECONDS: Final = _Range(1e-3, 1e6)
_RANGES: Final = {
    "rate": _Range(sweep.LEAST_RATE, sweep.LARGEST_RATE),
    "copies": _COUNT,
    "most": _COUNT,
    "seeds": _COUNT,
    "jobs": _COUNT,
    "replicas": _Range(1, 4096),
    "workers": _Range(1, 64),
    "kv_tokens": _Range(512, 1e9),
    "ttft": _SECONDS,
    "tpot": _Range(1e-6, 1e6),
    "jitter": _Range(0, 1e6),
    "scrape_interval": _Range(0.01, 5),
    "signal_delay": _Range(0, 60),
    "knee_factor": _Range(1, 1000),
}
_LEGEND: Final = (
    "Seconds. TTFT: time to first token, E2E: to the last, TPOT: for each token after the first. Slow: TTFT"
    " over that of the same request alone on an idle replica. Hits: prompt tokens from the cache. Busiest:"
    " tokens of the busiest replica over the mean. *: best. --json has every figure."
)
_KNEE_LEGEND: Final = (
    "Knee: multiple of the trace's rate; the other figures are those at the knee. TTFT: time to first token,"
    " in seconds. Hits: prompt tokens from the cache. Busiest: tokens of the busiest replica over the mean."
    " *: best."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = (
        "Example: warmroute replay conversation_trace.jsonl --replicas 8 --rate 2 --compare. Formats, figures"
        " and how to record a trace of your own: docs/replay.md. Exit status: 0 replayed, 2 the trace or an"
        " argument cannot be used."
    )
    parser.add_argument(
        "trace",
        type=Path,
        nargs="?",
        default=SAMPLE,
        help="a trace: a file, or a folder of session files; default: a part of a real one that comes along",
    )
    parser.add_argument("--format", choices=sorted(FORMATS), default="", help="default: by its first line")
    policies = parser.add_mutually_exclusive_group()
    policies.add_argument(
        "--policy",
        action="append",
        choices=sorted(POLICIES),
        metavar="NAME",
        help=f"{', '.join(sorted(POLICIES))}; may be repeated; default: {', '.join(_POLICIES)}",
    )
    policies.add_argument("--compare", action="store_true", help="every policy, side by side")
    parser.add_argument("--sweep", action="store_true", help="find each policy's knee, by bisection")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw distributions and timelines: .png, .svg"
    )
    _load_arguments(parser.add_argument_group("load"))
    _fleet_arguments(parser.add_argument_group("fleet"))
    output = parser.add_argument_group("output")
    output.add_argument("--ttft", type=float, default=2.0, metavar="S", help="limit of goodput, default 2")
    output.add_argument("--tpot", type=float, default=0.1, metavar="S", help="per output token, default 0.1")
    output.add_argument(
        "--knee-factor",
        type=float,
        default=sweep.KNEE_FACTOR,
        metavar="X",
        help="at the knee, TTFT p90 is this many times that of requests alone on an idle replica; default 2",
    )
    cores = os.cpu_count() or 1
    output.add_argument("--jobs", type=int, default=cores, metavar="N", help="processes, default all cores")
    output.add_argument("--json", action="store_true", help="print one JSON object")


def _load_arguments(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rate",
        type=float,
        metavar="X",
        help=f"multiple of the trace's rate; default 1, without a trace {_SAMPLE_RATE:g}",
    )
    group.add_argument(
        "--copies", type=int, default=1, metavar="N", help="copies of it at once; they share no prefix"
    )
    group.add_argument("--most", type=int, metavar="N", help="only the first N requests of the file")
    group.add_argument("--seeds", type=int, default=1, metavar="N", help="repetitions with other jitter")
    group.add_argument(
        "--jitter",
        type=float,
        metavar="S",
        help="each request comes up to S seconds later; default: 3 where a trace's times are rounded so",
    )


def _fleet_arguments(group: argparse._ArgumentGroup) -> None:
    default = Job("warmroute")
    group.add_argument("--replicas", type=int, default=default.replicas, metavar="N", help="default 8")
    group.add_argument("--workers", type=int, default=1, metavar="N", help="ext_proc workers, default 1")
    group.add_argument(
        "--gpu",
        choices=fit_names(),
        default=default.gpu,
        metavar="NAME",
        help=f"GPU, model and parallelism, default {default.gpu}; an unknown name prints the list",
    )
    group.add_argument(
        "--kv-tokens", type=int, default=default.kv_tokens, metavar="N", help="of a replica, default 700000"
    )
    group.add_argument(
        "--scrape-interval",
        type=float,
        metavar="S",
        help="between two readings of an engine; default: each policy's own",
    )
    group.add_argument(
        "--signal-delay", type=float, default=0.0, metavar="S", help="from a reading to picks, default 0"
    )
    group.add_argument(
        "--fail",
        action="append",
        default=[],
        metavar="AT:REPLICA:SECONDS[:KIND]",
        help="a fault, at a time in seconds: gone (default), frozen, or slow"
        f" ({SLOW_FACTOR:g} times); may be repeated",
    )
    group.add_argument(
        "--cancel",
        metavar="SHARE:SECONDS",
        help="clients of this share of the requests leave, each within these seconds",
    )


def run(args: argparse.Namespace) -> int:
    """Replay and print.

    Raises:
        WarmrouteError: the trace cannot be read, or an argument is out of range.
    """
    if args.rate is None:
        args.rate = _SAMPLE_RATE if args.trace is SAMPLE else 1.0
    _check_ranges(args)
    job = Job(
        policy="",
        replicas=args.replicas,
        rate=args.rate,
        copies=args.copies,
        workers=args.workers,
        gpu=args.gpu,
        kv_tokens=args.kv_tokens,
        limits=Limits(args.ttft, args.tpot),
        jitter_seconds=args.jitter,
        scrape_seconds=args.scrape_interval,
        signal_delay_seconds=args.signal_delay,
        faults=tuple(fault_of(text) for text in args.fail),
        cancels=NO_CANCELS if args.cancel is None else cancels_of(args.cancel),
    )
    check_faults(job.faults, args.replicas)
    trace = read_trace(args.trace, args.format, args.most)
    check_copies(trace, job.copies)
    check_fits(trace, job)
    policies = tuple(POLICIES) if args.compare else tuple(dict.fromkeys(args.policy or _POLICIES))
    jobs = [
        replace(job, policy=policy, seed=seed) for seed in range(1, args.seeds + 1) for policy in policies
    ]
    if args.sweep:
        _sweep(args, trace, jobs)
    else:
        _replay(args, trace, jobs)
    return 0


def _replay(args: argparse.Namespace, trace: Trace, jobs: Sequence[Job]) -> None:
    if args.plot is not None:
        plot.check_plot(args.plot)
    outcomes = _in_processes(run_whole_job, trace, jobs, args.jobs)
    results = {
        policy: over_seeds([figures(outcome, jobs[0].limits) for outcome in each])
        for policy, each in _by_policy(jobs, outcomes).items()
    }
    title = (
        f"{len(trace.requests) * args.copies:,} requests of {trace.name}, {args.rate:g} times its rate, on"
        f" {args.replicas} replicas"
    )
    if args.plot is not None:
        first = {policy: each[0] for policy, each in _by_policy(jobs, outcomes).items()}
        plot.draw(first, title, args.plot, jobs[0].faults)
    ideal = trace.ideal_hit_ratio
    load = _load(outcomes[0], args.replicas)
    warnings = [
        *_past_the_knee(args.knee_factor, outcomes[0], results),
        *_late_faults(jobs[0], outcomes),
        *_left(results),
    ]
    if args.json:
        content = {"ideal_hit_ratio": ideal, "load": load, "warnings": warnings, "policies": _plain(results)}
        _print_json(args, trace, jobs[0], content)
        return
    console = Console()
    console.print(
        f"{title} ({args.gpu}, {args.kv_tokens:,} KV tokens each). One endless cache for all would have"
        f" {ideal:.1%} hits. The prompts alone take {load:.0%} of the replicas' time without any cache, and"
        f" {load * (1 - ideal):.0%} with that one."
    )
    console.print(figure_table(results, console.width))
    console.print(_LEGEND + _references(results), style="dim")
    for warning in warnings:
        console.print(f"Warning: {warning}", style="yellow")


def _load(outcome: Outcome, replicas: int) -> float:
    """Return the prefill of all prompts without a cache, as a share of the replicas' time until the last."""
    return float(outcome.alone.sum() / (replicas * max(float(np.ptp(outcome.at)), 1e-9)))


def _past_the_knee(
    factor: float, outcome: Outcome, results: Mapping[str, Mapping[str, Interval]]
) -> Iterator[str]:
    """Name the policies that do not keep up."""
    limit = sweep.limit_seconds(outcome, factor)
    past = [
        policy
        for policy, result in results.items()
        if result["left"].mean < 1 and not result["ttft_p90"].mean <= limit  # NaN: all have failed.
    ]
    if past:
        yield (
            f"past the knee, by load or faults (TTFT p90 above {limit:.2f} s, {factor:g} times that of"
            f" requests alone): {', '.join(past)}. There queues grow as long as the load lasts,"
            " so figures depend on the trace's length. A lower --rate avoids it, --sweep finds each knee."
        )


def _left(results: Mapping[str, Mapping[str, Interval]]) -> Iterator[str]:
    """Say how many requests the times leave out."""
    shares = [f"{policy} {result['left'].mean:.1%}" for policy, result in results.items()]
    if any(result["left"].mean for result in results.values()):
        yield (
            f"clients left before their answers' end: {', '.join(shares)}. Times are those of the other"
            " requests; without a first token a request misses the goodput."
        )


def _late_faults(job: Job, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Name the faults that no replay has reached."""
    end = max(float(outcome.at[0]) + outcome.seconds for outcome in outcomes)
    for fault in job.faults:
        if fault.at >= end:
            yield f"--fail at {fault.at:g} s has no effect: the last request ends at {end:.0f} s."


def _sweep(args: argparse.Namespace, trace: Trace, jobs: Sequence[Job]) -> None:
    if args.plot is not None:
        raise WarmrouteError("--plot is of one rate, and --sweep has many; allowed: one of the two")
    work = partial(sweep.run_sweep, factor=args.knee_factor)
    knees = _by_policy(jobs, _in_processes(work, trace, jobs, args.jobs, sweep.USUAL_REPLAYS))
    per_second = len(trace.requests) * args.copies / (trace.seconds or 1.0)
    results = {
        policy: {
            "rate": interval([each.rate for each in each_seed]),
            "requests_per_second": interval([each.rate * per_second for each in each_seed]),
            **over_seeds([each.figures for each in each_seed]),
        }
        for policy, each_seed in knees.items()
    }
    limit = next(iter(knees.values()))[0].limit_seconds
    if args.json:
        _print_json(args, trace, jobs[0], {"limit_ttft_p90_seconds": limit, "knees": _plain(results)})
        return
    console = Console()
    console.print(
        f"Knee: the highest multiple of the rate of {trace.name} at which {args.replicas} replicas keep TTFT"
        f" p90 at or under {limit:.2f} s, {args.knee_factor:g} times that of requests alone on an idle"
        f" replica; within {sweep.PRECISION:.0%}."
    )
    console.print(knee_table(results, console.width))
    console.print(_KNEE_LEGEND + _references(results), style="dim")


def _references(policies: Iterable[str]) -> str:
    """Say which of the policies no router can have; "" where there is none."""
    references = sorted(REFERENCES.intersection(policies))
    return (
        f" Only for reference, they know more than a router can: {', '.join(references)}."
        if references
        else ""
    )


def _check_ranges(args: argparse.Namespace) -> None:
    for name, (least, largest) in _RANGES.items():
        value = getattr(args, name)
        if value is not None and not least <= value <= largest:
            option = name.replace("_", "-")
            raise WarmrouteError(f"--{option} is {value}; allowed: {least:g} to {largest:g}")


def _in_processes(
    work: Callable[[Job], T], trace: Trace, jobs: Sequence[Job], processes: int, replays: int = 1
) -> list[T]:
    """Do the jobs in a pool of processes, with a progress bar on a terminal. A job has `replays` of them."""
    # Not by a fork of this process: the progress bar has a thread, and so may the program around us.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "warmroute.cli.replay"])
    requests = context.Value("Q")
    total = len(jobs) * replays * len(trace.requests) * jobs[0].copies
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    pool = ProcessPoolExecutor(
        min(processes, len(jobs)), context, initializer=begin_process, initargs=(trace, requests)
    )
    console = Console(stderr=True)
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"{len(jobs)} {'replays' if replays == 1 else 'sweeps'}", total=total)
            futures = [pool.submit(work, job) for job in jobs]
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                progress.update(task, completed=requests.value)
                for future in done:
                    future.result()
            return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def _by_policy(jobs: Sequence[Job], results: Sequence[T]) -> dict[str, list[T]]:
    grouped: dict[str, list[T]] = {}
    for job, result in zip(jobs, results, strict=True):
        grouped.setdefault(job.policy, []).append(result)
    return grouped


def _print_json(args: argparse.Namespace, trace: Trace, job: Job, content: Mapping[str, Any]) -> None:
    parameters = {
        "rate": job.rate,
        "copies": job.copies,
        "seeds": args.seeds,
        "replicas": job.replicas,
        "workers": job.workers,
        "gpu": job.gpu,
        "kv_tokens": job.kv_tokens,
        "jitter_seconds": job.jitter_seconds,
        "scrape_seconds": job.scrape_seconds,
        "signal_delay_seconds": job.signal_delay_seconds,
        "faults": [fault._asdict() for fault in job.faults],
        "cancels": job.cancels._asdict(),
    }
    print(
        json.dumps(
            {"trace": trace.name, "requests": len(trace.requests), "parameters": parameters, **content}
        )
    )


def _plain(results: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, dict[str, float | None]]]:
    return {
        policy: {
            name: {part: None if isnan(value) else value for part, value in interval._asdict().items()}
            for name, interval in each.items()
        }
        for policy, each in results.items()
    }
