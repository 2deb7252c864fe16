"""What one request costs the ext_proc process in CPU, next to a bare gRPC server that answers a constant.

The turns of `bench.lane` at 8 connections with chats of 4 KB and 48 KB, and no other ones: a minute. wrk is
needed.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from bench import lane
from bench.lane_site import BARE, GRPCIO, LANE
from warmroute.demo import processes, report

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.lane import Figures
    from warmroute.demo.report import Target

CONNECTIONS: Final = 8
MOST_OVER_BARE: Final = {GRPCIO: {"4kb": 2.8, "48kb": 3.3}, LANE: {"4kb": 0.35, "48kb": 0.55}}
"""Targets: CPU of a request over that at the bare server, which depends little on the host."""


def targets_of(figures: Figures) -> Iterator[Target]:
    """Compare with the targets."""
    for side, bounds in MOST_OVER_BARE.items():
        for size, most in bounds.items():
            over = figures.cpu_over_bare(size, CONNECTIONS, side)
            yield report.at_most(f"cpu_{size}_{side}_over_bare", over, most)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.request_cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="turns of each kind; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    sides, rounds = (BARE, GRPCIO, LANE), max(1, args.rounds)
    figures = processes.run(lane.measure(sides, lane.QUICK_SIZES, rounds, 1, (CONNECTIONS,)))
    lane.show(figures)
    return report.finish(lane.result_of(figures), list(targets_of(figures)), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
