"""Reuse of connections by the real Envoy, to engines over HTTP/1.1 and HTTP/2, and to ext_proc.

One Envoy runs the product's configuration. Each of its clusters has two copies: one with Envoy's default
limits, and one with a new connection for each request. Requests go to the three in turn, and ext_proc picks
for all of them. CPU is that of Envoy's threads, by the scheduler. The engines are an Envoy with direct
responses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.handshake import cpu_seconds
from bench.reuse_site import CELLS, DEFAULTS, ONCE, OURS, PROTOCOLS, WAYS, Cell, Site
from fleet.names import EXT_PROC_CLUSTER, HEADER_REASON
from warmroute.demo import processes, report
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.http_client import ExchangeError, HttpClient
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warmroute.demo.report import Target

_PATH: Final = "/v1/chat/completions"
_READY_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_SESSIONS: Final = 50
_LEAST_PICKED: Final = 0.95
_MOST_TO_DEFAULTS: Final = 2.0
"""The product closes connections that are idle for as long as engines may: those that only a peak needs come
and go, and how many a peak needs is chance."""
_LEAST_TO_ONCE: Final = {"http1": 10.0, "h2": 50.0}
"""How many times fewer connections than with one for each request."""
_MOST_CPU_TO_ONCE: Final = 1.0
_MOST_EXT_PROC: Final = 3.0
"""One for each thread of Envoy's, one for health checks, and one spare."""


@dataclass
class CellFigures:
    """What one cell took."""

    requests: int = 0
    failures: int = 0
    picked: int = 0
    connections: int = 0
    cpu_micros: list[float] = field(default_factory=list)
    """Envoy's CPU for a request, by round."""

    @property
    def per_thousand(self) -> float | None:
        """Connections for a thousand requests."""
        return report.ratio(1000.0 * self.connections, float(self.requests))


@dataclass
class Run:
    """All cells, and what they had in common."""

    cells: dict[Cell, CellFigures]
    ext_proc_connections: int = 0
    ext_proc_streams: int = 0


async def reuse(requests: int, concurrency: int, engines: int, rounds: int) -> Run:
    """Run every cell; those of one protocol take turns, so that a busy host is one for all.

    Raises:
        BenchError: a part did not start.
    """
    run = Run({cell: CellFigures() for cell in CELLS})
    with tempfile.TemporaryDirectory(prefix="warmroute-") as directory:
        site = Site(Path(directory), engines)
        await site.start()
        try:
            async with (
                EnvoyProcess(site.engine_bootstrap()) as served,
                EnvoyProcess(site.bootstrap()) as envoy,
            ):
                await served.wait_ready(listeners=len(CELLS) * engines)
                await envoy.wait_ready(listeners=len(CELLS))
                await _picking(site, envoy)
                for protocol in PROTOCOLS:
                    for _ in range(rounds):
                        for way in WAYS:
                            cell = Cell(protocol, way)
                            await _round(site, envoy, cell, run.cells[cell], requests, concurrency)
                for cell, figures in run.cells.items():
                    figures.connections = await _count(envoy, cell.name, "upstream_cx_total")
                run.ext_proc_connections = await _count(envoy, EXT_PROC_CLUSTER, "upstream_cx_total")
                run.ext_proc_streams = await _count(envoy, EXT_PROC_CLUSTER, "upstream_rq_total")
        finally:
            await site.stop()
    return run


async def _picking(site: Site, envoy: EnvoyProcess) -> None:
    """Wait until Envoy asks ext_proc."""
    client = HttpClient(site.addresses[CELLS[0].name], time.monotonic)
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        response = await client.request("POST", _PATH, _body(0))
        if HEADER_REASON in response.headers:
            break
        if time.monotonic() > deadline:
            raise BenchError(f"Envoy does not ask ext_proc:\n{envoy.log[-2000:]}")
        await asyncio.sleep(_POLL_SECONDS)
    client.close()


async def _round(
    site: Site, envoy: EnvoyProcess, cell: Cell, figures: CellFigures, requests: int, concurrency: int
) -> None:
    client = HttpClient(site.addresses[cell.name], time.monotonic)
    numbers = iter(range(requests))

    async def ask() -> None:
        for number in numbers:
            figures.requests += 1
            try:
                response = await client.request("POST", _PATH, _body(number))
            except ExchangeError:
                figures.failures += 1
                continue
            figures.failures += response.status != 200
            figures.picked += HEADER_REASON in response.headers

    cpu = cpu_seconds(envoy.pid)
    await asyncio.gather(*(ask() for _ in range(concurrency)))
    figures.cpu_micros.append(1e6 * (cpu_seconds(envoy.pid) - cpu) / requests)
    client.close()


async def _count(envoy: EnvoyProcess, cluster: str, name: str) -> int:
    """A counter of a cluster since Envoy's start."""
    stat = f"cluster.{cluster}.{name}"
    return (await envoy.stats(stat)).get(stat, 0)


def _body(number: int) -> bytes:
    """A prompt of a session's next turn: 2 KB."""
    text = f"session {number % _SESSIONS}: " + "what was it that you said? " * 80
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


def cell_json(figures: CellFigures) -> dict[str, Any]:
    """One cell as `--json` prints it."""
    return {
        "requests": figures.requests,
        "failures": figures.failures,
        "picked": figures.picked,
        "connections_per_1000_requests": figures.per_thousand,
        "envoy_cpu_micros_per_request": median(figures.cpu_micros) if figures.cpu_micros else None,
    }


def result_of(run: Run) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and the targets: ratios only."""
    targets = []
    for protocol in PROTOCOLS:
        ours, defaults, once = (run.cells[Cell(protocol, way)] for way in (OURS, DEFAULTS, ONCE))
        mine = ours.per_thousand
        fewer, more = report.ratio(once.per_thousand, mine), report.ratio(mine, defaults.per_thousand)
        # Round by round: what else the host does is much the same for neighbours.
        costs = [one / other for one, other in zip(ours.cpu_micros, once.cpu_micros, strict=True)]
        picked = report.ratio(float(ours.picked), float(ours.requests))
        targets += [
            report.at_least(f"{protocol}_connections_once_to_ours", fewer, _LEAST_TO_ONCE[protocol]),
            report.at_most(f"{protocol}_connections_ours_to_defaults", more, _MOST_TO_DEFAULTS),
            report.at_most(
                f"{protocol}_cpu_ours_to_once", median(costs) if costs else None, _MOST_CPU_TO_ONCE
            ),
            report.at_least(f"{protocol}_picked_ratio", picked, _LEAST_PICKED),
        ]
    shared = report.ratio(1000.0 * run.ext_proc_connections, float(run.ext_proc_streams))
    targets += [
        report.at_most("ext_proc_connections_per_1000_streams", shared, _MOST_EXT_PROC),
        report.exactly("failures", sum(figures.failures for figures in run.cells.values()), 0),
    ]
    return {
        "cells": {cell.name: cell_json(figures) for cell, figures in run.cells.items()},
        "ext_proc_connections": run.ext_proc_connections,
        "ext_proc_streams": run.ext_proc_streams,
    }, targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.reuse", description=__doc__)
    parser.add_argument("--requests", type=int, default=200, help="of a round (default 200)")
    parser.add_argument("--rounds", type=int, default=15, help="of each kind (default 15)")
    parser.add_argument("--concurrency", type=int, default=16, help="requests at once (default 16)")
    parser.add_argument("--engines", type=int, default=4)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    meter = CpuMeter()
    run = processes.run(reuse(args.requests, args.concurrency, args.engines, args.rounds))
    result, targets = result_of(run)
    result |= {"concurrency": args.concurrency, "engines": args.engines, "cpu_used_ratio": meter.used_ratio()}
    for name, one in result["cells"].items():
        report.progress(
            f"{name:15} {one['connections_per_1000_requests'] or 0:7.1f} connections for 1000 requests,"
            f" {one['envoy_cpu_micros_per_request'] or 0:6.0f} us of Envoy's CPU each"
        )
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
