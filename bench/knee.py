"""Find the knees of workloads: `python -m bench.knee [NAME ...]` prints them and records them.

A fleet keeps up at a rate while its TTFT p90 is at most `FACTOR` times the p90 that the same requests have
each alone on an idle, cold replica. The knee is the highest such rate, as a multiple of the trace's own. The
recorded knee of a workload is that of the better of two references, which do not change as ours is tuned.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.workloads import FAMILY, KNEES, WORKLOADS, entry, workload
from warmroute.demo import report
from warmroute.replay.job import replay_job

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warmroute.replay.job import Job
    from warmroute.replay.trace import Trace

REFERENCES: Final = ("cold_price", "greedy_perfect")
FACTOR: Final = 2.0
PRECISION: Final = 0.02
"""Of a knee, relative."""
_FIRST_STEP: Final = 1.1
_LARGEST_STEP: Final = 2.0


def knee(trace: Trace, job: Job, policies: Sequence[str], guess: float) -> float:
    """Return the knee of the best of `policies`; of `job`, policy and rate do not count."""

    def keeps_up(rate: float) -> bool:
        for policy in policies:
            outcome = replay_job(trace, replace(job, policy=policy, rate=rate))
            ttft, alone = np.percentile((outcome.ttft, outcome.alone), 90, axis=1)
            if ttft <= FACTOR * alone:
                return True
        return False

    return highest(keeps_up, guess)


def highest(passes: Callable[[float], bool], guess: float) -> float:
    """Return the highest rate that passes, within `PRECISION`, if every lower one passes too."""
    low = high = guess
    step = _FIRST_STEP
    if passes(guess):
        while passes(high := low * step):
            low, step = high, min(step * step, _LARGEST_STEP)
    else:
        while not passes(low := high / step):
            high, step = low, min(step * step, _LARGEST_STEP)
    while high > low * (1 + PRECISION):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low


def main(argv: Sequence[str] | None = None) -> int:
    """Find and record."""
    parser = argparse.ArgumentParser(prog="python -m bench.knee", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    args = parser.parse_args(argv)
    for name in args.names or (*WORKLOADS, *FAMILY):
        guess = _recorded().get(name, 1.0)
        rate = round(knee(workload(name), entry(name).engine, REFERENCES, guess), 3)
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
