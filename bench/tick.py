"""What one tick of xds_server costs, in parts: 1,000 endpoints whose pages, GPUs, requests and workers move.

In each tick a quarter of the metrics pages and of the GPU reports is new, 200 requests have finished, and two
workers have reported. CPU of this process, in milliseconds: medians over the ticks, the best of some rounds.
HTTP and the reading of pages belong to `bench.scrape`; `pages` is what happens with numbers that were read.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, generate_latest

from bench.tick_site import Site
from warmroute.demo import report

if TYPE_CHECKING:
    from collections.abc import Callable

POOLS: Final = 10
TICK_SECONDS: Final = 0.25
MOST_TICK_MS: Final = 25.0
"""A tenth of a core at four ticks a second."""


def measure(endpoints: int, ticks: int) -> dict[str, float]:
    """Run one round; return the median of each part and of the tick, in milliseconds."""
    site = Site(endpoints, POOLS, random.Random(7))
    spent: dict[str, list[float]] = {}

    def timed(part: str, work: Callable[[], Any]) -> float:
        began = time.process_time_ns()
        work()
        used = (time.process_time_ns() - began) / 1e6
        spent.setdefault(part, []).append(used)
        return used

    for number in range(ticks + 8):
        if number == 8:  # Windows are full, weights have settled, first messages are built.
            spent.clear()
        site.now += TICK_SECONDS
        site.move(number)
        timed("pages", site.pages)
        parts = [timed(name, work) for name, work in site.tick_parts()]
        spent.setdefault("tick", []).append(sum(parts))
        timed("worker", site.worker)
    registry = CollectorRegistry()
    registry.register(site.exposition())
    for _ in range(8):
        timed("exposition", lambda: generate_latest(registry))
    return {name: statistics.median(entries) for name, entries in spent.items()} | {
        f"{name}_mean": statistics.fmean(spent[name]) for name in ("snapshot", "tick")
    }


def tick(endpoints: int, ticks: int, rounds: int) -> dict[str, Any]:
    """Return the best round's figure of each part."""
    measured = []
    for number in range(rounds):
        measured.append(measure(endpoints, ticks))
        report.progress(f"round {number + 1}: {measured[-1]['tick']:.2f} ms a tick")
    best = {name: round(min(entry[name] for entry in measured), 3) for name in measured[0]}
    return {"endpoints": endpoints, "pools": POOLS, "cpu_ms": best}


def main(given: list[str] | None = None) -> int:
    """Run the bench; the exit status tells whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.tick", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=1000, help="in ten pools (default 1000)")
    parser.add_argument("--ticks", type=int, default=60, help="of each round (default 60)")
    parser.add_argument("--rounds", type=int, default=5, help="(default 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(given)
    logging.disable()  # The figures are random, so skew begins and ends all the time.
    result = tick(args.endpoints, args.ticks, args.rounds)
    targets = [report.at_most("cpu_ms.tick", result["cpu_ms"]["tick"], MOST_TICK_MS)]
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
