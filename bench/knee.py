"""Find the knees of workloads: `python -m bench.knee [NAME ...]` prints them and records them.

A knee is that of `warmroute replay --sweep`. The recorded one of a workload is that of the better of two
references, which do not change as ours is tuned.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.workloads import FAMILY, KNEES, WORKLOADS, entry, workload
from warmroute.demo import report
from warmroute.replay.sweep import knee

if TYPE_CHECKING:
    from collections.abc import Sequence

REFERENCES: Final = ("cold_price", "greedy_perfect")


def main(argv: Sequence[str] | None = None) -> int:
    """Find and record."""
    parser = argparse.ArgumentParser(prog="python -m bench.knee", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    args = parser.parse_args(argv)
    for name in args.names or (*WORKLOADS, *FAMILY):
        guess = _recorded().get(name, 1.0)
        trace, job = workload(name), replace(entry(name).engine, rate=guess)
        rate = round(max(knee(trace, replace(job, policy=policy)).rate for policy in REFERENCES), 3)
        report.progress(f"{name:12} {rate:g}")
        # Read again: another run may have recorded some meanwhile.
        knees = dict(sorted({**_recorded(), name: rate}.items()))
        KNEES.write_text(json.dumps(knees, indent=1) + "\n")
    return 0


def _recorded() -> dict[str, float]:
    knees: dict[str, float] = json.loads(KNEES.read_text()) if KNEES.exists() else {}
    return knees


if __name__ == "__main__":
    sys.exit(report.command(main))
