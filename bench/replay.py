"""Every policy on every workload by `warmroute replay`, at shares of the workload's knee, over seeds.

Whole, it takes hours: `--into FILE` keeps each replay's figures, so that runs of parts add up, and a last run
of everything only sums up. Delete the file after a change of code. `--quick` replays the first requests of
each trace, and `--family` the generated workloads that nobody tuned for.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.replay_cells import Cell, run_cells
from bench.replay_report import LOAD, OURS, WORKERS, plain, summary, tables, targets_of
from bench.workloads import FAMILY, WORKLOADS, ideal_hit_ratio, workload
from warmroute.demo import report
from warmroute.replay.policies import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOADS: Final = (0.7, LOAD, 0.95)
SEEDS: Final = 5
FAMILY_SEEDS: Final = 2
_QUICK_REQUESTS: Final = 2_500
_QUICK_SEEDS: Final = 2


def cells_of(args: argparse.Namespace) -> Iterator[Cell]:
    """Yield what the options choose."""
    names = args.workload or (FAMILY if args.family else tuple(WORKLOADS))
    loads = args.load or ((LOAD,) if args.quick or args.family else LOADS)
    policies = args.policy or tuple(POLICIES)
    for name in names:
        for policy in policies:
            for load in loads:
                for seed in range(1, args.seeds + 1):
                    yield Cell(name, policy, load, seed, most=args.most)
            if not (args.quick or args.family or args.load):
                yield Cell(name, policy, 0.0)
        if OURS in policies and LOAD in loads and name not in FAMILY:
            for seed in range(1, args.seeds + 1):
                yield Cell(name, OURS, LOAD, seed, WORKERS, args.most)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the bench's options."""
    parser.add_argument(
        "--workload", action="append", choices=(*WORKLOADS, *FAMILY), metavar="NAME", help="default all"
    )
    parser.add_argument(
        "--policy", action="append", choices=sorted(POLICIES), metavar="NAME", help="default all"
    )
    parser.add_argument(
        "--load", action="append", type=_load, help="share of the knee, default 0.7, 0.85, 0.95 and the knees"
    )
    parser.add_argument(
        "--seeds", type=int, choices=range(1, 31), metavar="N", help="default 5, 2 of a family"
    )
    parser.add_argument("--family", action="store_true", help="the generated family")
    parser.add_argument("--quick", action="store_true", help="fewer requests and seeds, one load, no knees")
    parser.add_argument("--into", type=Path, metavar="FILE", help="keep results here, and use those that are")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--markdown", action="store_true", help="print the tables on standard output")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.replay", description=__doc__)
    arguments(parser)
    args = parser.parse_args(argv)
    args.seeds = args.seeds or (_QUICK_SEEDS if args.quick else FAMILY_SEEDS if args.family else SEEDS)
    args.most = _QUICK_REQUESTS if args.quick else None
    cells = list(cells_of(args))
    results = run_cells(cells, args.into, args.jobs)
    names = dict.fromkeys(cell.workload for cell in cells)
    summed = summary(results, {name: ideal_hit_ratio(workload(name, 1, args.most)) for name in names})
    for table in tables(summed):
        print(f"\n{table}", file=sys.stdout if args.markdown else sys.stderr)
    return report.finish(plain(summed), targets_of(summed), as_json=args.json)


def _load(text: str) -> float:
    try:
        load = float(text)
    except ValueError:
        load = 0.0
    if not 0 < load <= 2:
        raise argparse.ArgumentTypeError(f"{text!r}; allowed: a number above 0, up to 2")
    return load


if __name__ == "__main__":
    sys.exit(report.command(main))
