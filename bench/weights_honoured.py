"""The engines' shares of requests compared with the pushed weights, through the real Envoy, by policy.

Cells: weights that are constant or change ten times a second (by a few per cent, around 70/20/10), at 5 or 50
requests a second. With `--members` an engine of weight 1 also comes and goes with every update, which makes
each policy restart. Each cell runs the product's cluster, without any pick, next to round_robin and
least_request with the same weights at the same time. A cell of few requests runs on several clusters at once,
so that chance stays well below the tolerance; the remaining noise is reported next to each share.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.honour_engines import Engines
from bench.honour_envoy import HEADER, OURS, POLICIES, Clusters
from warmroute.demo import processes, report
from warmroute.demo.cpu import CpuMeter
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.http_client import ExchangeError, HttpClient
from warmroute.demo.processes import BenchError, free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from warmroute.demo.report import Target

_WEIGHTS: Final = (7000, 2000, 1000)
_RATES: Final = (5.0, 50.0)
_LANES: Final = {5.0: 4, 50.0: 1}
"""Clusters of a cell, by rate: each is met by that rate."""
_UPDATES: Final = {"still": 0.0, "churn": 10.0}
"""Weight updates a second."""
_CHANGE_RATIO: Final = 0.02
_TOLERANCE: Final = 0.05
_Z95: Final = 1.96
_READY_SECONDS: Final = 20.0


@dataclass
class Cell:
    """One policy under one kind of churn at one rate."""

    policy: str
    churn: str
    rate: float
    clusters: list[str] = field(default_factory=list)
    served_by_cluster: list[Counter[str]] = field(default_factory=list)
    """Address to requests that arrived there, by cluster."""
    failures: int = 0

    @property
    def name(self) -> str:
        """A name for figures."""
        return f"{self.policy}_{self.churn}_{self.rate:g}_per_second"


@dataclass
class Pushed:
    """The weights of the churned clusters, over time."""

    updates: int = 0
    taken: int = 0
    """Updates that Envoy has taken, of the cluster with the fewest."""
    sums: dict[str, float] = field(default_factory=dict)
    """Address to the sum of its shares, one summand an update."""

    def add(self, weights: Mapping[str, int]) -> None:
        """Take an update; all last equally long."""
        total = sum(weights.values())
        self.updates += 1
        for address, weight in weights.items():
            self.sums[address] = self.sums.get(address, 0.0) + weight / total

    def shares(self) -> dict[str, float]:
        """Return the mean shares."""
        return {address: value / self.updates for address, value in self.sums.items()}


def cells() -> list[Cell]:
    """Every policy under every churn at every rate, each with clusters of its own."""
    made = [Cell(policy, churn, rate) for policy in POLICIES for churn in _UPDATES for rate in _RATES]
    for cell in made:
        cell.clusters = [f"{cell.name}_{lane}" for lane in range(_LANES[cell.rate])]
    return made


async def weights_honoured(
    seconds: float, seed: int, merge_window: float | None, *, members: bool = False
) -> tuple[list[Cell], dict[str, float], Pushed]:
    """Run all cells at once; return them, the still weights' shares and what the others were.

    Raises:
        BenchError: Envoy did not take the configuration.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    made, pushed, engines = cells(), Pushed(), Engines(len(_WEIGHTS) + 1)
    try:
        async with AsyncExitStack() as stack:
            await engines.start()
            stack.push_async_callback(engines.stop)
            *lasting, passing = engines.addresses
            usual = dict(zip(lasting, _WEIGHTS, strict=True))
            policies = {name: cell.policy for cell in made for name in cell.clusters}
            clusters = Clusters(f"{directory}/xds.sock", policies, engines.addresses, usual, merge_window)
            await clusters.start()
            stack.push_async_callback(clusters.stop)
            front = f"127.0.0.1:{free_port()}"
            envoy = await stack.enter_async_context(
                EnvoyProcess(clusters.bootstrap(front), directory=directory)
            )
            await envoy.wait_ready()
            client = HttpClient(front, time.monotonic)
            stack.callback(client.close)
            for name in policies:
                await _wait_served(client, name)
            engines.served_by_cluster.clear()
            report.progress(f"{len(policies)} clusters, {seconds:g} s")
            guest = passing if members else None
            churn = asyncio.create_task(_churn(clusters, made, usual, guest, pushed, random.Random(seed)))
            await asyncio.gather(
                *(
                    _lane(client, cell, name, seconds, random.Random(f"{seed} {name}"))
                    for cell in made
                    for name in cell.clusters
                )
            )
            churn.cancel()
            stats = await envoy.stats("cluster.*_churn_.*update_success")
            pushed.taken = min((stats[name] for name in stats), default=0)
            for cell in made:
                cell.served_by_cluster = [
                    engines.served_by_cluster.get(name, Counter()) for name in cell.clusters
                ]
            total = sum(_WEIGHTS)
            return made, {address: weight / total for address, weight in usual.items()}, pushed
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _wait_served(client: HttpClient, name: str) -> None:
    """Return when a cluster answers: Envoy's listener is open before its clusters have come."""
    deadline = time.monotonic() + _READY_SECONDS
    while (response := await client.request("GET", "/", headers={HEADER: name})).status != 200:
        if time.monotonic() > deadline:
            raise BenchError(f"cluster {name} answers {response.status}")
        await asyncio.sleep(0.05)


async def _churn(
    clusters: Clusters,
    made: Sequence[Cell],
    usual: Mapping[str, int],
    guest: str | None,
    pushed: Pushed,
    draw: random.Random,
) -> None:
    """Push other weights to every churned cluster, all the same, on a steady beat."""
    names = [name for cell in made if _UPDATES[cell.churn] for name in cell.clusters]
    beat = 1 / _UPDATES["churn"]
    began = time.monotonic()
    while True:
        weights = {
            address: round(weight * draw.uniform(1 - _CHANGE_RATIO, 1 + _CHANGE_RATIO))
            for address, weight in usual.items()
        }
        if guest is not None and pushed.updates % 2:
            weights[guest] = 1
        clusters.push(dict.fromkeys(names, weights))
        pushed.add(weights)
        await asyncio.sleep(max(0.0, began + pushed.updates * beat - time.monotonic()))


async def _lane(client: HttpClient, cell: Cell, name: str, seconds: float, draw: random.Random) -> None:
    """Send requests at random moments (Poisson), so that none keeps step with the updates."""
    began = time.monotonic()
    at = 0.0
    async with asyncio.TaskGroup() as sending:
        while (at := at + draw.expovariate(cell.rate)) < seconds:
            await asyncio.sleep(max(0.0, began + at - time.monotonic()))
            sending.create_task(_request(client, cell, name))


async def _request(client: HttpClient, cell: Cell, name: str) -> None:
    try:
        response = await client.request("GET", "/", headers={HEADER: name})
    except ExchangeError:
        cell.failures += 1
        return
    cell.failures += response.status != 200


def noise(share: float, requests: int) -> float:
    """How far chance alone may take a share, 95 %: the binomial's normal approximation."""
    return _Z95 * float((share * (1 - share) / requests) ** 0.5) if requests else 1.0


def cell_json(cell: Cell, shares: Mapping[str, float]) -> dict[str, Any]:
    """Return a cell's figures; engines in the order of their weights."""
    served = sum(cell.served_by_cluster, Counter())
    requests, pushed = sum(served.values()), list(shares.values())
    served_shares = _shares(served, shares)
    return {
        "policy": cell.policy,
        "updates_per_second": _UPDATES[cell.churn],
        "requests_per_second": cell.rate,
        "requests": requests,
        "failures": cell.failures,
        "pushed_shares": pushed,
        "seen_shares": served_shares,
        "furthest_off": _furthest_off(served_shares, pushed),
        # What differs from one cluster to the next, and lasts, would cancel out in the sum.
        "furthest_off_by_cluster": [
            _furthest_off(_shares(one, shares), pushed) for one in cell.served_by_cluster
        ],
        "noise": max(noise(share, requests) for share in pushed),
    }


def _shares(served: Counter[str], addresses: Iterable[str]) -> list[float]:
    requests = sum(served.values())
    return [served[address] / requests if requests else 0.0 for address in addresses]


def _furthest_off(served: Sequence[float], pushed: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(served, pushed, strict=True))


def result_of(
    made: Sequence[Cell], still: Mapping[str, float], pushed: Pushed
) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and the targets: ours alone has any."""
    figures = {
        cell.name: cell_json(cell, pushed.shares() if _UPDATES[cell.churn] else still) for cell in made
    }
    targets = [
        report.at_most(f"{cell.name}_furthest_off", figures[cell.name]["furthest_off"], _TOLERANCE)
        for cell in made
        if cell.policy == OURS
    ]
    failures = sum(cell.failures for cell in made)
    targets.append(report.exactly("failures", failures, 0))
    return {"updates": pushed.updates, "updates_taken": pushed.taken, "cells": figures}, targets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.weights_honoured", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="default 120")
    parser.add_argument(
        "--merge-window",
        type=float,
        help="seconds over which Envoy merges updates of weights (default: as the product's cluster has it)",
    )
    parser.add_argument("--members", action="store_true", help="let an engine of weight 1 come and go too")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    meter = CpuMeter()
    run = weights_honoured(args.seconds, args.seed, args.merge_window, members=args.members)
    result, targets = result_of(*processes.run(run))
    result["cpu_used_ratio"] = meter.used_ratio()
    for cell in result["cells"].values():
        shares = "/".join(f"{share * 100:.1f}" for share in cell["seen_shares"])
        report.progress(
            f"{cell['policy']:14} {cell['updates_per_second']:4g} updates/s {cell['requests_per_second']:4g}"
            f" requests/s: {shares} of {cell['requests']},"
            f" furthest off {cell['furthest_off'] * 100:.1f} points"
            f" (noise {cell['noise'] * 100:.1f}; by cluster"
            f" {', '.join(f'{off * 100:.1f}' for off in cell['furthest_off_by_cluster'])})"
        )
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
