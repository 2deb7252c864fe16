"""`warmroute replay`: a trace through our picks and other policies, on simulated engines in virtual time."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from fleet.errors import WarmrouteError
from warmroute.replay.figures import Limits, over_seeds
from warmroute.replay.job import Job, begin_process, check_fits, run_job
from warmroute.replay.policies import POLICIES
from warmroute.replay.trace import FORMATS, read_trace
from warmroute.simulator.fits import fit_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from warmroute.replay.figures import Figures, Interval
    from warmroute.replay.trace import Trace


class _Column(NamedTuple):
    title: str
    form: str
    rank: int
    """A narrow terminal leaves out the highest."""


_COLUMNS: Final = {
    "ttft_p50": _Column("TTFT p50", "{:.3f}", 1),
    "ttft_p90": _Column("TTFT p90", "{:.3f}", 0),
    "ttft_p99": _Column("TTFT p99", "{:.2f}", 2),
    "e2e_p50": _Column("E2E p50", "{:.1f}", 6),
    "e2e_p99": _Column("E2E p99", "{:.1f}", 3),
    "slowdown_p99": _Column("slowdown", "{:.1f}", 4),
    "hit_ratio": _Column("hits", "{:.1%}", 0),
    "busiest_over_mean": _Column("busiest", "{:.2f}", 5),
    "goodput": _Column("goodput", "{:.1%}", 7),
}
_MORE_IS_BETTER: Final = frozenset({"hit_ratio", "goodput"})
_POLICY_WIDTH: Final = 16
_COLUMN_WIDTH: Final = 10
_INTERVAL_WIDTH: Final = 9
_RANGES: Final = {
    "rate": (1e-3, 1e3),
    "kv_tokens": (512, 1e9),
    "ttft": (1e-3, 1e6),
    "tpot": (1e-6, 1e6),
    "replicas": (1, 4096),
    "workers": (1, 64),
}
_LEGEND: Final = (
    "Seconds. TTFT: time to first token, E2E: to the last. Slowdown: p99 of TTFT over that of the same"
    " request alone on an idle replica. Busiest: tokens of the busiest replica over the mean. *: best."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = (
        "Example: warmroute replay conversation_trace.jsonl --replicas 8 --rate 2 --compare. Formats and"
        " figures: docs/replay.md. Exit status: 0 replayed, 2 the trace or an argument cannot be used."
    )
    parser.add_argument("trace", type=Path, help="a trace: a file, or a folder of session files")
    parser.add_argument("--format", choices=sorted(FORMATS), default="", help="default: by its first line")
    policies = parser.add_mutually_exclusive_group()
    policies.add_argument(
        "--policy", action="append", choices=sorted(POLICIES), help="default warmroute; may be repeated"
    )
    policies.add_argument("--compare", action="store_true", help="every policy, side by side")
    default = Job("warmroute")
    parser.add_argument("--replicas", type=int, default=default.replicas, metavar="N", help="default 8")
    parser.add_argument("--rate", type=float, default=1.0, metavar="X", help="multiple of the trace's rate")
    parser.add_argument(
        "--copies", type=int, default=1, metavar="N", help="copies of it at once; they share no prefix"
    )
    parser.add_argument("--most", type=int, metavar="N", help="only the first N requests of the file")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="repetitions with other jitter")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="ext_proc workers, default 1")
    parser.add_argument("--gpu", choices=fit_names(), default=default.gpu, help=f"default {default.gpu}")
    parser.add_argument(
        "--kv-tokens", type=int, default=default.kv_tokens, metavar="N", help="of a replica, default 700000"
    )
    parser.add_argument("--ttft", type=float, default=2.0, metavar="S", help="limit of goodput, default 2")
    parser.add_argument("--tpot", type=float, default=0.1, metavar="S", help="per output token, default 0.1")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, metavar="N", help="processes, default all cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay and print.

    Raises:
        WarmrouteError: the trace cannot be read, or an argument is out of range.
    """
    _check_arguments(args)
    policies = tuple(POLICIES) if args.compare else tuple(dict.fromkeys(args.policy or ("warmroute",)))
    trace = read_trace(args.trace, args.format, args.most)
    jobs = [
        Job(
            policy=policy,
            seed=seed,
            replicas=args.replicas,
            rate=args.rate,
            copies=args.copies,
            workers=args.workers,
            gpu=args.gpu,
            kv_tokens=args.kv_tokens,
            limits=Limits(args.ttft, args.tpot),
        )
        for seed in range(1, args.seeds + 1)
        for policy in policies
    ]
    check_fits(trace, jobs[0])
    by_policy: dict[str, list[Figures]] = {policy: [] for policy in policies}
    for job, result in zip(jobs, _results(trace, jobs, args.jobs), strict=True):
        by_policy[job.policy].append(result)
    results = {policy: over_seeds(runs) for policy, runs in by_policy.items()}
    if args.json:
        print(json.dumps({"trace": trace.name, "requests": len(trace.requests), "policies": _plain(results)}))
        return 0
    console = Console()
    console.print(
        f"{len(trace.requests) * args.copies} requests of {trace.name}, {args.rate:g} times its rate, on"
        f" {args.replicas} replicas ({args.gpu}, {args.kv_tokens} KV tokens each)"
    )
    console.print(table(results, console.width))
    console.print(_LEGEND, style="dim")
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    for name in (
        "replicas",
        "rate",
        "copies",
        "seeds",
        "workers",
        "kv_tokens",
        "ttft",
        "tpot",
        "jobs",
        "most",
    ):
        value, (least, largest) = getattr(args, name), _RANGES.get(name, (1, 1e9))
        if value is not None and not least <= value <= largest:
            option = name.replace("_", "-")
            raise WarmrouteError(f"--{option} is {value}; allowed: {least:g} to {largest:g}")


def _results(trace: Trace, jobs: Sequence[Job], processes: int) -> list[Figures]:
    """Replay in a pool of processes, with a progress bar on a terminal."""
    requests = multiprocessing.Value("Q")
    total = len(jobs) * len(trace.requests) * jobs[0].copies
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    pool = ProcessPoolExecutor(
        min(processes, len(jobs)), initializer=begin_process, initargs=(trace, requests)
    )
    console = Console(stderr=True)
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(f"{len(jobs)} replays", total=total)
            futures = [pool.submit(run_job, job) for job in jobs]
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                progress.update(task, completed=requests.value)
                for future in done:
                    future.result()
            return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def table(results: Mapping[str, Mapping[str, Interval]], width: int) -> Table:
    """Return a row per policy, with as many columns as the width has room for; the best are marked."""
    with_interval = any(not isnan(result["ttft_p50"].half_width) for result in results.values())
    each = _COLUMN_WIDTH + (_INTERVAL_WIDTH if with_interval else 0)
    room = max(2, (width - _POLICY_WIDTH) // each)
    if with_interval and room < len(_COLUMNS):
        # Every figure before any interval: `--json` has both.
        with_interval, room = False, max(2, (width - _POLICY_WIDTH) // _COLUMN_WIDTH)
    last = sorted(column.rank for column in _COLUMNS.values())[:room][-1]
    shown = {name: column for name, column in _COLUMNS.items() if column.rank <= last}
    drawn = Table(box=None, pad_edge=False)
    drawn.add_column("policy", no_wrap=True)
    for column in shown.values():
        drawn.add_column(column.title, justify="right", no_wrap=True)
    best = {
        name: _best(name, column, [result[name].mean for result in results.values()])
        for name, column in shown.items()
    }
    for policy, result in results.items():
        cells = []
        for name, column in shown.items():
            text = column.form.format(result[name].mean)
            mark = "*" if text == best[name] else " "
            interval = f" ±{column.form.format(result[name].half_width)}" if with_interval else ""
            cells.append(f"{text}{interval}{mark}")
        drawn.add_row(policy, *cells)
    return drawn


def _best(name: str, column: _Column, means: Sequence[float]) -> str:
    """Return the best mean as the table shows it; empty where most policies have it."""
    best = column.form.format((max if name in _MORE_IS_BETTER else min)(means))
    return best if 2 * sum(column.form.format(mean) == best for mean in means) <= len(means) else ""


def _plain(results: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, dict[str, float | None]]]:
    return {
        policy: {
            name: {part: None if isnan(value) else value for part, value in interval._asdict().items()}
            for name, interval in each.items()
        }
        for policy, each in results.items()
    }
