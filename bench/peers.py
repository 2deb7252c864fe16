"""Envoy with Warmroute next to other routers for LLM requests: latency, CPU, and life with a faulty engine.

sglang-router, smg and vllm-router come from PyPI at a pinned version, each in an environment of its own below
the user's cache, with their default policy. First, all routers stand in front of the same engines, which are
answers of another Envoy, and wrk loads one after the other in short turns, each with its own round of direct
requests; a difference is taken within each round, and the median of the rounds counts. Warmroute is
`warmroute serve` with its defaults: scrapes, access log and discovery are part of its cost. On one core, the
router has one to itself, and wrk and engines have another. Then engines are frozen, refuse and go away
(`bench/peers_faults.py`). wrk is Debian's package `wrk`, which is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench import peers_faults
from bench.lane_site import chats
from bench.peers_site import OURS, PEERS, Proxy, default_folder, install, running_proxy
from bench.reuse_site import engine_listener
from bench.tiny_engine import TinyEngine
from bench.wrk import Wrk
from warmroute.demo import processes, report
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bench.wrk import Load
    from warmroute.demo.report import Target

NAMES: Final = (OURS, *PEERS)
CONNECTIONS: Final = (1, 8, 32)
ENGINES: Final = 4
MODEL: Final = "m"
BODY_BYTES: Final = 4 * 1024
FASTEST: Final = "sglang-router"
MOST_ABOVE_FASTEST_MS: Final = 0.2
"""Of the p50 that Warmroute adds for one connection, above the one of `FASTEST`."""
_ONE_CORE_CONNECTIONS: Final = 32
_SETTLE_SECONDS: Final = 2.0
_SIGMAS: Final = 2.0
"""A count or share of few requests differs by chance: this number of standard deviations is none."""
_WINDOW_SECONDS: Final = 1.5
"""The window in which `again_seconds` looks for requests: shorter differences are chance."""


@dataclass
class Cost:
    """What the turns of one router at one number of connections measured, one value a round."""

    p50_ms: list[float] = field(default_factory=list)
    added_p50_ms: list[float] = field(default_factory=list)
    added_p99_ms: list[float] = field(default_factory=list)
    a_second: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    """CPU of all its processes for a request."""


class OneCore(NamedTuple):
    """Requests of a router that has one core."""

    a_second: float
    a_cpu_second: float
    """For a second of CPU that the router used: what a core of its own would carry on an idle host."""


@dataclass
class Costs:
    """Of all routers."""

    turns: dict[tuple[str, int], Cost] = field(default_factory=dict)
    """By router and connections."""
    on_one_core: dict[str, list[OneCore]] = field(default_factory=dict)
    """One value a round."""


async def measure(names: Sequence[str], folder: Path, directory: Path, rounds: int, seconds: int) -> Costs:
    """Load all routers in turn.

    Raises:
        BenchError: a part did not start, or requests failed.
    """
    costs = Costs()
    async with contextlib.AsyncExitStack() as stack:
        first = free_ports(ENGINES)
        engines = [f"127.0.0.1:{port}" for port in range(first, first + ENGINES)]
        upstream = {"static_resources": {"listeners": [engine_listener(at, _pages()) for at in engines]}}
        engine = await stack.enter_async_context(EnvoyProcess(upstream, directory=directory))
        await engine.wait_ready(listeners=ENGINES)
        proxies = [
            await stack.enter_async_context(running_proxy(name, engines, MODEL, folder, directory))
            for name in names
        ]
        await asyncio.sleep(_SETTLE_SECONDS)
        wrk = Wrk(directory / "bodies", chats(BODY_BYTES, stream=False))
        for proxy in proxies:
            await _load(wrk, proxy.address, proxy.name, max(CONNECTIONS), 1)
        for number in range(rounds):
            report.progress(f"round {number + 1} of {rounds}")
            for connections in CONNECTIONS:
                direct = await _load(wrk, engines[0], "engine", connections, seconds)
                for proxy in proxies:
                    cost = costs.turns.setdefault((proxy.name, connections), Cost())
                    await _turn(cost, wrk, proxy, direct, connections, seconds)
        await _on_one_core(costs, wrk, proxies, engine, rounds, seconds)
    return costs


def _pages() -> dict[str, str]:
    models = {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "vllm"}]}
    return {"/v1/models": json.dumps(models), "/metrics": TinyEngine(0.2, 0.0).page()}


async def _turn(cost: Cost, wrk: Wrk, proxy: Proxy, direct: Load, connections: int, seconds: int) -> None:
    before = proxy.cpu_seconds()
    load = await _load(wrk, proxy.address, proxy.name, connections, seconds)
    cost.cpu_us.append(1e6 * (proxy.cpu_seconds() - before) / load.requests)
    cost.p50_ms.append(load.p50_ms)
    cost.added_p50_ms.append(load.p50_ms - direct.p50_ms)
    cost.added_p99_ms.append(load.p99_ms - direct.p99_ms)
    cost.a_second.append(load.a_second)


async def _load(wrk: Wrk, address: str, name: str, connections: int, seconds: int) -> Load:
    load = await wrk.run(address, connections, seconds)
    if load.refused or load.broken:
        raise BenchError(f"{name}: {load.refused} requests were refused and {load.broken} broke: {load}")
    return load


async def _on_one_core(
    costs: Costs, wrk: Wrk, proxies: Sequence[Proxy], engine: EnvoyProcess, rounds: int, seconds: int
) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("one core for the router and another one for wrk and engines: this host has one")
    mine, others = cores[:2]
    Proxy("engine", "", (engine.pid,)).pin(others)
    for proxy in proxies:
        proxy.pin(mine)
    for _ in range(rounds):
        for proxy in proxies:
            before = proxy.cpu_seconds()
            load = await wrk.run(proxy.address, _ONE_CORE_CONNECTIONS, seconds, core=others)
            used = OneCore(load.a_second, load.requests / (proxy.cpu_seconds() - before))
            costs.on_one_core.setdefault(proxy.name, []).append(used)


def _median(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def costs_of(costs: Costs, name: str) -> dict[str, Any]:
    """Return the medians of one router."""
    row: dict[str, Any] = {}
    for connections in CONNECTIONS:
        cost = costs.turns.get((name, connections), Cost())
        for key in ("added_p50_ms", "added_p99_ms", "a_second", "cpu_us"):
            row[f"c{connections}_{key}"] = _median(getattr(cost, key))
    for key in OneCore._fields:
        row[f"one_core_{key}"] = _median([getattr(one, key) for one in costs.on_one_core.get(name, ())])
    return row


def cost_targets(costs: Costs) -> list[Target]:
    """Compare the latency with the fastest peer's."""
    ours, fastest = (costs.turns.get((name, 1), Cost()).p50_ms for name in (OURS, FASTEST))
    above = [mine - other for mine, other in zip(ours, fastest, strict=True)] if ours else []
    return [report.at_most("p50_c1_ms_above_sglang_router", _median(above), MOST_ABOVE_FASTEST_MS)]


def fault_targets(figures: Mapping[str, Mapping[str, Any]]) -> list[Target]:
    """Compare each case with the best peer's, as far as chance permits."""
    targets = []
    for key, chance in _CHANCES.items():
        peers = [figures[name][key] for name in PEERS if name in figures]
        # A router that does not send requests there again has no time, which is no merit.
        best = min([peers_faults.WATCH_SECONDS if value is None else value for value in peers])
        targets.append(report.at_most(key, figures[OURS][key], best + chance(best)))
    return targets


def _of_counts(best: float) -> float:
    """Standard deviations of a Poisson count."""
    return _SIGMAS * math.sqrt(max(best, 1.0))


def _of_shares(requests: float) -> Callable[[float], float]:
    """Standard deviations of a share of `requests`."""
    return lambda best: _SIGMAS * math.sqrt(best * (1.0 - best) / requests)


_CHANCES: Final[dict[str, Callable[[float], float]]] = {
    "ties_busiest_share": _of_shares(peers_faults.TIES),
    "refusing_lost": _of_counts,
    "refusing_again_seconds": lambda _: _WINDOW_SECONDS,
    "away_lost": _of_counts,
    "away_again_seconds": lambda _: _WINDOW_SECONDS,
    "frozen_lost": _of_counts,
    "frozen_share": _of_shares(peers_faults.RATE * peers_faults.FROZEN_SECONDS),
}
"""The cases' figures, lower is better, and what they may be above the best peer's."""


def table(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a Markdown table with a column for each router."""
    names = list(rows)
    titles = [name if name == OURS else f"{name} {PEERS[name].version}" for name in names]
    lines = ["| | " + " | ".join(titles) + " |", "| --- " * (len(names) + 1) + "|"]
    for key in rows[names[0]]:
        values = [rows[name].get(key) for name in names]
        cells = [
            "never" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
            for value in values
        ]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=5, help="of load; default: %(default)s")
    parser.add_argument("--seconds", type=int, default=1, help="of a turn; default: %(default)s")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="one round of load, and no faults")
    parser.add_argument(
        "--folder", type=Path, default=default_folder(), help="of environments; default: %(default)s"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    install(args.folder, list(PEERS))
    directory = Path(tempfile.mkdtemp(prefix="warmroute-peers-"))
    try:
        rounds = 1 if args.quick else max(1, args.rounds)
        costs = processes.run(measure(NAMES, args.folder, directory, rounds, max(1, args.seconds)))
        faults: dict[str, dict[str, Any]] = {}
        if not args.quick:
            faults = processes.run(peers_faults.measure(NAMES, args.folder, directory, args.seed))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows = {name: {**costs_of(costs, name), **faults.get(name, {})} for name in NAMES}
    for line in table(rows):
        report.progress(line)
    targets = [*cost_targets(costs), *(fault_targets(faults) if faults else ())]
    versions = {name: peer.version for name, peer in PEERS.items()}
    return report.finish({"versions": versions, "routers": rows}, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
