"""Connect, subscribe, cancel, many thousand times: tasks, watches and memory of the server come back.

A cycle is a connection of its own with an ADS stream, cancelled at one of four points: at once, after the
first request, when everything has come, or (now and then, for it takes long) after a push. The reference
is the same server's own stock after the first half of the cycles, in which allocators and the caches of
responses take what they keep anyway.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import itertools
import shutil
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.peer import Peer
from bench.xds_client import METHODS, XdsClient
from warmroute.demo import processes, report
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmroute.demo.report import Target

_WORKERS: Final = 8
_ENDPOINTS: Final = 100
_SETTLE_SECONDS: Final = 20.0
_BYTES_PER_CYCLE: Final = 100.0
"""A leaked task or stream object is several KiB; below this it is the allocator's noise."""
_POINTS: Final = 4
_COUNTED: Final = ("tasks", "watches", "clients", "connections")


async def xds_churn(cycles: int, variant: str) -> dict[str, Any]:
    """Run the cycles; return the server's stock at rest: before all, half-way, at the end.

    Raises:
        BenchError: the server ended or a client was not served.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    try:
        async with AsyncExitStack() as stack:
            address = f"unix:{directory}/churn.sock"
            peer = Peer("churn", "bench.xds_churn_server", (address, str(_ENDPOINTS)), directory)
            server = await stack.enter_async_context(peer)
            names = (await server.ask(do="start"))["names"]
            stocks = {"idle": await server.ask(do="stock")}
            began = time.monotonic()
            for stage, count in (("half", cycles // 2), ("end", cycles - cycles // 2)):
                await server.ask(do="push")
                numbers = iter(range(count))
                await asyncio.gather(*(_worker(numbers, address, variant, names) for _ in range(_WORKERS)))
                await server.ask(do="rest")
                stocks[stage] = await _settled(server, stocks["idle"])
                report.progress(f"{stage}: {stocks[stage]} after {time.monotonic() - began:.0f} s")
            return {"cycles": cycles, "variant": variant, "stock": stocks}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _worker(numbers: Iterator[int], address: str, variant: str, names: dict[str, list[str]]) -> None:
    for number in numbers:
        received = asyncio.Event()
        count = itertools.count(1)

        def note(_: int, received: asyncio.Event = received, count: Iterator[int] = count) -> None:
            if next(count) > 1:
                received.set()

        client = XdsClient(f"churn-{number}", address, variant, names, note)
        try:
            async with asyncio.timeout(30):
                match number % _POINTS:
                    case 0:
                        await asyncio.sleep(0)
                    case 1:
                        await client.subscribed.wait()
                    case 2:
                        await client.synced.wait()
                    case _:
                        await (received if number % 100 == _POINTS - 1 else client.synced).wait()
        except TimeoutError:
            client.check()
            raise BenchError(f"client {number} was not served within 30 s") from None
        finally:
            await client.close()


async def _settled(server: Peer, idle: dict[str, Any]) -> dict[str, Any]:
    """Return the stock when what is counted is back to idle, or what it is after a while."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    gc.collect()  # A call that was cancelled early keeps its connection open until then.
    while True:
        stock = await server.ask(do="stock")
        if all(stock[name] <= idle[name] for name in _COUNTED):
            return stock
        if time.monotonic() > deadline:
            return stock
        await asyncio.sleep(0.1)


def targets_of(result: dict[str, Any]) -> list[Target]:
    """Compare the end with the beginning, and its memory with half-way."""
    stock, cycles = result["stock"], result["cycles"] - result["cycles"] // 2
    counts = [
        report.exactly(f"{name}_left", stock["end"][name] - stock["idle"][name], 0) for name in _COUNTED
    ]
    grown = (stock["end"]["resident_bytes"] - stock["half"]["resident_bytes"]) / cycles
    return [*counts, report.at_most("memory_bytes_per_cycle", grown, _BYTES_PER_CYCLE)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench; the exit status shows whether all targets are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.xds_churn", description=__doc__)
    parser.add_argument(
        "--cycles", type=int, default=20_000, help="half of them as a warm-up (default 20000)"
    )
    parser.add_argument("--variant", choices=tuple(METHODS), default="sotw")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    result = processes.run(xds_churn(args.cycles, args.variant))
    targets = targets_of(result)
    return report.finish(result, targets, as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
