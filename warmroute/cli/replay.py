"""`warmroute replay`: a trace through our picks and other policies, on simulated engines in virtual time."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from math import inf, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fleet.errors import WarmrouteError
from warmroute.replay.figures import Limits, over_seeds
from warmroute.replay.job import Job, run_job
from warmroute.replay.policies import POLICIES
from warmroute.replay.trace import FORMATS, read_trace
from warmroute.simulator.fits import DEFAULT_FIT, fit_names

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from warmroute.replay.figures import Figures, Interval


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
_LEGEND: Final = (
    "Seconds. TTFT: time to first token, E2E: to the last. Slowdown: p99 of TTFT over that of the same"
    " request alone on an idle replica. Busiest: tokens of the busiest replica over the mean. *: best."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.epilog = (
        "Example: warmroute replay conversation_trace.jsonl --replicas 8 --rate 2 --compare. Exit status: 0"
        " replayed, 2 the trace or an argument cannot be used."
    )
    parser.add_argument("trace", type=Path, help="a trace: a file, or a folder of session files")
    parser.add_argument("--format", choices=sorted(FORMATS), default="", help="default: by its first line")
    parser.add_argument(
        "--policy", action="append", choices=sorted(POLICIES), help="default: warmroute; may be repeated"
    )
    parser.add_argument("--compare", action="store_true", help="every policy, side by side")
    parser.add_argument("--replicas", type=int, default=8, metavar="N", help="engines, default 8")
    parser.add_argument("--rate", type=float, default=1.0, metavar="X", help="times the trace's own rate")
    parser.add_argument("--copies", type=int, default=1, metavar="N", help="copies that share no prefix")
    parser.add_argument("--most", type=int, metavar="N", help="only the first N requests")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="runs of each policy, default 1")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="ext_proc workers, default 1")
    parser.add_argument("--gpu", choices=fit_names(), default=DEFAULT_FIT, help=f"default {DEFAULT_FIT}")
    parser.add_argument("--kv-tokens", type=int, default=700_000, metavar="N", help="of one engine's cache")
    parser.add_argument("--ttft", type=float, default=2.0, metavar="S", help="limit of the goodput")
    parser.add_argument("--tpot", type=float, default=0.1, metavar="S", help="the same, by output token")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Replay and print.

    Raises:
        WarmrouteError: the trace cannot be read, or an argument is not above 0.
    """
    for name in ("replicas", "rate", "copies", "seeds", "workers", "kv_tokens", "ttft", "tpot", "jobs"):
        if not 0 < getattr(args, name) < inf:
            raise WarmrouteError(f"--{name.replace('_', '-')} is {getattr(args, name)}; allowed: above 0")
    policies = tuple(POLICIES) if args.compare else tuple(dict.fromkeys(args.policy or ("warmroute",)))
    trace = read_trace(args.trace, args.format, args.most)
    limits = Limits(args.ttft, args.tpot)
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
            limits=limits,
        )
        for seed in range(1, args.seeds + 1)
        for policy in policies
    ]
    by_policy: dict[str, list[Figures]] = {policy: [] for policy in policies}
    with (
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        ) as progress,
        ProcessPoolExecutor(min(args.jobs, len(jobs))) as pool,
    ):
        task = progress.add_task(f"{len(trace.requests)} requests", total=len(jobs))
        futures = {pool.submit(run_job, trace, job): job for job in jobs}
        for future in as_completed(futures):
            by_policy[futures[future].policy].append(future.result())
            progress.advance(task)
    results = {policy: over_seeds(runs) for policy, runs in by_policy.items()}
    if args.json:
        print(json.dumps({"trace": trace.name, "requests": len(trace.requests), "policies": _plain(results)}))
    else:
        console = Console()
        console.print(table(results, console.width))
        console.print(_LEGEND, style="dim")
    return 0


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
        name: (max if name in _MORE_IS_BETTER else min)(result[name].mean for result in results.values())
        for name in shown
    }
    for policy, result in results.items():
        cells = []
        for name, column in shown.items():
            text = column.form.format(result[name].mean)
            mark = "*" if len(results) > 1 and text == column.form.format(best[name]) else " "
            interval = f" ±{column.form.format(result[name].half_width)}" if with_interval else ""
            cells.append(f"{text}{interval}{mark}")
        drawn.add_row(policy, *cells)
    return drawn


def _plain(results: Mapping[str, Mapping[str, Interval]]) -> dict[str, dict[str, Sequence[float | None]]]:
    return {
        policy: {
            name: [None if isnan(value) else value for value in interval] for name, interval in each.items()
        }
        for policy, each in results.items()
    }
