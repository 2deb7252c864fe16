"""What ext_proc costs a request, by transport, next to Envoy alone and to a bare `grpc.aio` server.

The real Envoy, configured by the product, asks ext_proc for each chat request; engines are answers of another
Envoy, and wrk is the client. Short turns of all sides follow one another in each round, so that the noise of
the host meets all alike; a ratio is taken within each round, and the median of the rounds counts. CPU is that
of all threads of a process, by the kernel's scheduler. The requests are conversations that come again and
again, each time with another end. Latencies are wrk's, which counts a slow answer once more for each request
that its connection could have sent in the meantime.

The sides: `alone` is Envoy with a static configuration, `bare` a grpc.aio server that answers a constant,
`bare_lane` the same constant on the lane, `grpcio` and `lane` ext_proc on either transport. The output ends
with a far target, which does not count for the exit status: a fifth of the bare server's CPU. It shows what
is left to gain.

Three more runs have a flag each: `--long`, `--streams` and `--idle`. wrk (Debian's package `wrk`) is needed
by all but the last two.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench import lane_long
from bench.handshake import cpu_seconds
from bench.lane_site import (
    ALONE,
    BARE,
    BARE_LANE,
    FAILURES,
    GRPCIO,
    LANE,
    SIDES,
    Running,
    chats,
    running_sites,
)
from bench.wrk import Wrk
from warmroute.demo import processes, report
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.wrk import Load
    from warmroute.demo.report import Target

SIZES: Final = {"4kb": 4 * 1024, "48kb": 48 * 1024, "220kb": 220 * 1024, "6mb": 6 * 1024 * 1024}
QUICK_SIZES: Final = ("4kb", "48kb")
CONNECTIONS: Final = (1, 8, 32)
MOST_OF_BARE: Final = {"4kb": 0.3, "48kb": 0.5, "220kb": 0.5}
"""CPU of the service on the lane for a request, over that of the bare server, at 8 and 32 connections."""
FAR_TARGET: Final = 0.2
"""The same, as a far target: the table ends with how far it is."""
MOST_OF_BARE_ADDED: Final = 0.5
"""What the service adds to the p50 of one connection at 4 KB, divided by what the bare server adds."""
MOST_ADDED_MS: Final = 5.0
"""To the p50 of one connection at 220 KB."""
_ALL: Final = (*SIDES, BARE_LANE)
_WARM_UP_CONNECTIONS: Final = 8


@dataclass(frozen=True)
class Cell:
    """One side under one kind of load."""

    size: str
    connections: int
    side: str


@dataclass(frozen=True)
class Turn:
    """What one turn measured."""

    load: Load
    envoy_us: float
    """CPU of Envoy for a request."""
    service_us: float | None
    """CPU of the service for a request; None for Envoy alone."""


class Figures:
    """The turns of every cell, one a round."""

    def __init__(self) -> None:
        self.turns: dict[Cell, list[Turn]] = {}
        self.failures: dict[str, dict[str, int]] = {}
        """By side: what Envoy counted of ext_proc."""

    def median(self, cell: Cell, value: Callable[[Turn], float | None]) -> float | None:
        """Return the median over the rounds; None where a round has no value."""
        return _median([value(turn) for turn in self.turns.get(cell, ())])

    def cpu_over_bare(self, size: str, connections: int, side: str) -> float | None:
        """Return the CPU of a side's service divided by the bare server's."""
        pairs = self._rounds(size, connections, side, BARE)
        return _median([report.ratio(ours.service_us, bare.service_us) for ours, bare in pairs])

    def added_ms(self, size: str, connections: int, side: str) -> float | None:
        """Return what a side adds to the p50 of Envoy alone."""
        pairs = self._rounds(size, connections, side, ALONE)
        return _median([ours.load.p50_ms - alone.load.p50_ms for ours, alone in pairs])

    def added_over_bare(self, size: str, connections: int, side: str) -> float | None:
        """Return what a side adds to the p50, divided by what the bare server adds."""
        rounds = self._rounds(size, connections, side, BARE, ALONE)
        return _median(
            [
                report.ratio(ours.load.p50_ms - alone.load.p50_ms, bare.load.p50_ms - alone.load.p50_ms)
                for ours, bare, alone in rounds
            ]
        )

    def _rounds(self, size: str, connections: int, *sides: str) -> list[tuple[Turn, ...]]:
        return list(zip(*(self.turns.get(Cell(size, connections, side), ()) for side in sides), strict=False))


def _median(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers and len(numbers) == len(values) else None


async def measure(
    sides: Sequence[str],
    sizes: Sequence[str],
    rounds: int,
    seconds: int,
    connections: Sequence[int] = CONNECTIONS,
) -> Figures:
    """Run all turns.

    Raises:
        BenchError: a part did not start, wrk is missing, or a request failed.
    """
    figures = Figures()
    async with running_sites(sides) as (directory, running):
        wrks = {size: Wrk(directory / size, chats(SIZES[size])) for size in sizes}
        for wrk in wrks.values():
            for site in running.values():
                await _turn(site, wrk, _WARM_UP_CONNECTIONS, 1)
        before = {side: await site.failures() for side, site in running.items()}
        for number in range(rounds):
            report.progress(f"round {number + 1} of {rounds}")
            for size, wrk in wrks.items():
                for count in connections:
                    for side, site in running.items():
                        turn = await _turn(site, wrk, count, seconds)
                        figures.turns.setdefault(Cell(size, count, side), []).append(turn)
        for side, site in running.items():
            after = await site.failures()
            figures.failures[side] = {name: after[name] - before[side][name] for name in after}
    return figures


async def _turn(site: Running, wrk: Wrk, connections: int, seconds: int) -> Turn:
    pids = [site.envoy.pid] if site.service is None else [site.envoy.pid, site.service.pid]
    sent, before = await site.sent(), [cpu_seconds(pid) for pid in pids]
    load = await wrk.run(site.address, connections, seconds)
    used = [cpu_seconds(pid) - then for pid, then in zip(pids, before, strict=True)]
    if load.refused or load.broken:
        raise BenchError(f"{site.side}: {load.refused} requests were refused and {load.broken} broke: {load}")
    # Those that wrk cut at its end had their work done, too.
    count = await site.sent() - sent
    each = [1e6 * seconds / count for seconds in used]
    return Turn(load, each[0], None if site.service is None else each[1])


def result_of(figures: Figures) -> dict[str, Any]:
    """Return what `--json` prints next to the targets."""
    cells = [
        {
            "size": cell.size,
            "connections": cell.connections,
            "side": cell.side,
            "p50_ms": figures.median(cell, lambda turn: turn.load.p50_ms),
            "p99_ms": figures.median(cell, lambda turn: turn.load.p99_ms),
            "a_second": _rounded(figures.median(cell, lambda turn: turn.load.a_second)),
            "envoy_us": _rounded(figures.median(cell, lambda turn: turn.envoy_us)),
            "service_us": _rounded(figures.median(cell, lambda turn: turn.service_us)),
            "service_over_bare": _rounded(
                figures.cpu_over_bare(cell.size, cell.connections, cell.side), digits=3
            ),
        }
        for cell in figures.turns
    ]
    return {"cells": cells, "ext_proc": figures.failures}


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


def targets_of(figures: Figures) -> Iterator[Target]:
    """Compare with the targets, as far as their sizes were measured."""
    sizes = {cell.size for cell in figures.turns}
    for size, most in MOST_OF_BARE.items():
        for connections in CONNECTIONS[1:] if size in sizes else ():
            over = figures.cpu_over_bare(size, connections, LANE)
            yield report.at_most(f"cpu_{size}_c{connections}_lane_over_bare", over, most)
    yield report.at_most(
        "added_p50_4kb_c1_over_bare", figures.added_over_bare("4kb", 1, LANE), MOST_OF_BARE_ADDED
    )
    if "220kb" in sizes:
        yield report.at_most("added_p50_220kb_c1_ms", figures.added_ms("220kb", 1, LANE), MOST_ADDED_MS)
    counted = figures.failures.get(LANE)
    failures = None if counted is None else sum(counted[name] for name in FAILURES)
    yield report.exactly("lane_ext_proc_failures", failures, 0)


def show(figures: Figures) -> None:
    """Print a table, and how far the far target is."""
    titles = f"{'p50 ms':>8} {'p99 ms':>8} {'/s':>7} {'Envoy us':>8} {'service us':>10}"
    report.progress(f"{'':6} {'c':>2} {'':9} {titles}")
    for row in result_of(figures)["cells"]:
        cpu = "-" if row["service_us"] is None else f"{row['service_us']:.0f}"
        report.progress(
            f"{row['size']:6} {row['connections']:2} {row['side']:9} {row['p50_ms']:8.2f} "
            f"{row['p99_ms']:8.2f} {row['a_second']:7.0f} {row['envoy_us']:8.0f} {cpu:>10}"
        )
    for size in MOST_OF_BARE:
        for connections in CONNECTIONS[1:]:
            over = figures.cpu_over_bare(size, connections, LANE)
            if over is not None:
                report.progress(
                    f"far target: {FAR_TARGET:g} of the bare server's CPU; {size}, {connections} connections:"
                    f" {over:.3f}, {over / FAR_TARGET:.2f} times as much"
                )


_RUNS: Final[dict[str, tuple[float, str, str]]] = {
    "--long": (
        lane_long.REQUESTS,
        "REQUESTS",
        "failures and growth of memory over many requests, with clients that leave",
    ),
    "--streams": (lane_long.STREAMS, "STREAMS", "memory of open streams, on the lane and on grpcio"),
    "--idle": (lane_long.IDLE_SECONDS, "SECONDS", "wake-ups of services without any request"),
}
"""By flag: the default, what it counts, and what the run measures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.lane",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=3, help="turns of each kind; default: %(default)s")
    parser.add_argument("--seconds", type=int, default=1, help="of a turn; default: %(default)s")
    parser.add_argument(
        "--sides", default=",".join(SIDES), help=f"of {', '.join(_ALL)}; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="one round of 4 KB and 48 KB")
    runs = parser.add_mutually_exclusive_group()
    for flag, (default, unit, what) in _RUNS.items():
        text = f"{what}; default: %(const)s"
        runs.add_argument(flag, type=type(default), nargs="?", const=default, metavar=unit, help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    sides = tuple(args.sides.split(","))
    if unknown := set(sides) - set(_ALL):
        parser.error(f"no such side: {', '.join(sorted(unknown))}; there are {', '.join(_ALL)}")
    if args.long is not None:
        result = processes.run(lane_long.many_requests(LANE, args.long))
        return report.finish(result, lane_long.long_targets(result), as_json=args.json)
    if args.streams is not None:
        result = processes.run(lane_long.open_streams((LANE, GRPCIO), args.streams))
        return report.finish(result, lane_long.stream_targets(result), as_json=args.json)
    if args.idle is not None:
        result = processes.run(lane_long.idle((BARE_LANE, LANE, BARE, GRPCIO), args.idle))
        return report.finish(result, lane_long.idle_targets(result), as_json=args.json)
    sizes, rounds = (QUICK_SIZES, 1) if args.quick else (tuple(SIZES), max(1, args.rounds))
    figures = processes.run(measure(sides, sizes, rounds, max(1, args.seconds)))
    show(figures)
    return report.finish(result_of(figures), list(targets_of(figures)), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
