"""Constant signals cause no push, and two servers with the same input serve equal versions.

First, two pairs of servers run with the product's defaults. The engines of one pair have constant pages;
those of the other have constant gauges and running counters. Then smoothing, dead band and minimum interval
are off, one signal after another changes, and both servers of a pair must push the same versions in the same
order. Servers share nothing but their engines. With running counters, two servers read them at different
moments, so their input differs in the last digits: that pair must be quiet, and the equality of its versions
is reported without a target. The reference for the pushes of the quiet time is the number of pushes of a
changed signal.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peer import Peer
from bench.signal_to_ack import UNSTABILISED, settings_text
from bench.tiny_engine import TinyEngine
from bench.xds_client import XdsClient
from fleet.names import RESOURCE_TYPES, TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE
from warmroute.demo import processes, report
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from warmroute.demo.report import Target

_NAMES: Final = {TYPE_CLUSTER: [], TYPE_ENDPOINT: ["engines"], TYPE_LISTENER: [], TYPE_ROUTE: ["front"]}
_MEMORY: Final = (0.2, 0.5, 0.8)
_SETTLE_SECONDS: Final = 25.0
"""The latencies' window gets its first pages, smoothing (3 s) settles, and the settled weights are pushed."""
_LOST_SECONDS: Final = 5.0
_AFTER_CHANGE_SECONDS: Final = 0.3
"""Several ticks and scrapes: a second version for one change would come within it."""


@dataclass
class ServerWatch:
    """One server, and a client that receives all its responses."""

    server: Peer
    client: XdsClient
    versions: list[str] = field(default_factory=list)
    """Of endpoints, in the order of their coming."""

    async def pushes(self) -> int:
        """Return how many responses the server has written."""
        return int((await self.server.ask(do="counts"))["pushes"])


@dataclass
class Quiet:
    """What came of it."""

    seconds: float
    pushes: list[int] = field(default_factory=list)
    """Of each server in the quiet time: those on still pages, then those on running counters."""
    comparisons: int = 0
    unequal: int = 0
    """Comparisons of the versions of all types in which the two servers differed."""
    unequal_running: int = 0
    """The same of the pair on running counters, in the quiet time."""
    changes: int = 0
    pushes_of_changes: int = 0
    unequal_sequences: int = 0
    """Places at which the two sequences of versions differ."""


async def quiet(seconds: float, changes: int, seed: int) -> Quiet:
    """Run both parts.

    Raises:
        BenchError: a server did not start or did not push a change.
    """
    result = Quiet(seconds)
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    try:
        async with AsyncExitStack() as stack:
            pairs = []
            for name, rate in (("still", 0.0), ("running", 10.0)):
                engines = [await stack.enter_async_context(TinyEngine(used, rate)) for used in _MEMORY]
                pairs.append(await stack.enter_async_context(_pair(directory, engines, name, 0.25, 1.0, {})))
            await asyncio.sleep(_SETTLE_SECONDS)
            await _be_quiet(pairs[0], pairs[1], result)
        async with AsyncExitStack() as stack:
            engines = [await stack.enter_async_context(TinyEngine(used, 0.0)) for used in _MEMORY]
            pair = await stack.enter_async_context(
                _pair(directory, engines, "changing", 0.05, 0.05, UNSTABILISED)
            )
            await asyncio.sleep(1.0)
            await _change(pair, engines, changes, random.Random(seed), result)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return result


@contextlib.asynccontextmanager
async def _pair(
    directory: Path,
    engines: Sequence[TinyEngine],
    name: str,
    tick: float,
    scrape: float,
    stabiliser: dict[str, float],
) -> AsyncIterator[list[ServerWatch]]:
    """Run two servers on the same engines, with a client each that has everything."""
    addresses = [engine.address for engine in engines]
    # Apart from the socket the settings are one text, the listener's port included.
    text = settings_text("SOCKET", addresses, tick=tick, scrape=scrape, stabiliser=stabiliser)
    async with AsyncExitStack() as stack:
        pair = []
        for number in range(2):
            socket = f"{directory}/{name}-{number}.sock"
            file = directory / f"{name}-{number}.yaml"
            file.write_text(text.replace("SOCKET", socket))
            peer = Peer(f"{name}-{number}", "bench.xds_service", (str(file),), directory)
            server = await stack.enter_async_context(peer)
            await server.ask(do="start")
            pair.append(await _watch(server, f"unix:{socket}", stack))
        yield pair


async def _watch(server: Peer, address: str, stack: AsyncExitStack) -> ServerWatch:
    versions: list[str] = []
    client = XdsClient(
        "quiet", address, "sotw", _NAMES, lambda _: versions.append(client.versions[TYPE_ENDPOINT])
    )
    stack.push_async_callback(client.close)
    try:
        async with asyncio.timeout(30):
            await client.synced.wait()
    except TimeoutError:
        client.check()
        raise BenchError(f"{server.name} does not serve {address}") from None
    return ServerWatch(server, client, versions)


async def _be_quiet(still: Sequence[ServerWatch], running: Sequence[ServerWatch], result: Quiet) -> None:
    """Watch for `result.seconds`, and compare once a second."""
    everyone = [*still, *running]
    before = [await watch.pushes() for watch in everyone]
    until = time.monotonic() + result.seconds
    while time.monotonic() < until:
        await asyncio.sleep(min(1.0, result.seconds))
        result.comparisons += 1
        result.unequal += not _equal(still)
        result.unequal_running += not _equal(running)
    result.pushes = [await watch.pushes() - count for watch, count in zip(everyone, before, strict=True)]


def _equal(pair: Sequence[ServerWatch]) -> bool:
    first, second = (watch.client.versions for watch in pair)
    return first == second and first.keys() == set(RESOURCE_TYPES)


async def _change(
    pair: Sequence[ServerWatch],
    engines: Sequence[TinyEngine],
    changes: int,
    draw: random.Random,
    result: Quiet,
) -> None:
    """Change one signal after another, each after both servers pushed the one before."""
    before = await pair[0].pushes()
    for watch in pair:
        del watch.versions[:-1]
    for number in range(changes):
        lengths = [len(watch.versions) for watch in pair]
        engines[number % len(engines)].memory_used_ratio = draw.uniform(0.05, 0.8)
        deadline = time.monotonic() + _LOST_SECONDS
        while any(len(watch.versions) == length for watch, length in zip(pair, lengths, strict=True)):
            if time.monotonic() > deadline:
                raise BenchError(f"change {number} was not pushed by both servers")
            await asyncio.sleep(0.01)
        await asyncio.sleep(_AFTER_CHANGE_SECONDS)
        result.comparisons += 1
        result.unequal += not _equal(pair)
    result.changes = changes
    result.pushes_of_changes = await pair[0].pushes() - before
    result.unequal_sequences = sum(
        first != second for first, second in itertools.zip_longest(*(watch.versions for watch in pair))
    )


def result_of(quiet_run: Quiet) -> tuple[dict[str, Any], list[Target]]:
    """Return the object that `--json` prints, and its targets."""
    result = {
        "seconds": quiet_run.seconds,
        "pushes": quiet_run.pushes,
        "comparisons": quiet_run.comparisons,
        "unequal_versions": quiet_run.unequal,
        "unequal_versions_with_running_counters": quiet_run.unequal_running,
        "changes": quiet_run.changes,
        "pushes_of_changes": quiet_run.pushes_of_changes,
        "unequal_places_in_sequences": quiet_run.unequal_sequences,
    }
    return result, [
        report.exactly("pushes_with_constant_signals", sum(quiet_run.pushes), 0),
        report.exactly("unequal_versions", quiet_run.unequal, 0),
        report.exactly("unequal_places_in_sequences", quiet_run.unequal_sequences, 0),
        # A server that never pushes would be quiet too.
        report.at_least("pushes_of_changes", quiet_run.pushes_of_changes, quiet_run.changes),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.quiet", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of constant signals (default 60)")
    parser.add_argument("--changes", type=int, default=30, help="of signals, afterwards (default 30)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    result, targets = result_of(processes.run(quiet(args.seconds, args.changes, args.seed)))
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
