"""What one request costs the ext_proc process in CPU, next to a bare gRPC server that answers a constant.

The real Envoy, configured by the product, asks ext_proc for each chat request; engines are answers of another
Envoy. The sites differ only in the service that Envoy asks: the product's worker on the lane, the same on
grpcio, or a `grpc.aio` server that reads bytes and writes constants. Short turns at all of them follow one
another in one run, so that noise of the host meets all alike. CPU is that of all threads of the process, by
the kernel's scheduler. `bench.lane` measures the same under more kinds of load, by wrk.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from bench.handshake import cpu_seconds
from bench.lane_site import BARE, GRPCIO, LANE, chats, running_sites
from bench.wrk import MARK
from warmroute.demo import processes, report
from warmroute.demo.processes import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.lane_site import Running
    from warmroute.demo.report import Target

SIDES: Final = (BARE, GRPCIO, LANE)
SIZES: Final = {"4kb": 4 * 1024, "48kb": 48 * 1024}
TURN_REQUESTS: Final = 200
WARM_UP_REQUESTS: Final = 300
"""Before anything is measured, for each site: connections, imports and caches."""
AT_ONCE: Final = 4
MOST_OVER_BARE: Final = {GRPCIO: {"4kb": 2.8, "48kb": 3.3}, LANE: {"4kb": 0.35, "48kb": 0.55}}
"""Targets: CPU of a request over that at the bare server, which depends little on the host."""


@dataclass
class Cost:
    """CPU of one process for requests of one size."""

    requests: int = 0
    cpu_seconds: float = 0.0

    @property
    def microseconds(self) -> float | None:
        """Of one request."""
        each = report.ratio(self.cpu_seconds, self.requests)
        return None if each is None else round(1e6 * each, 1)


class Chats:
    """Chat requests of one size: conversations that take turns, each time with another end."""

    def __init__(self, size: int) -> None:
        self._chats = list(chats(size))
        self._next = 0

    def body(self) -> bytes:
        """Return the next request."""
        number, self._next = self._next, self._next + 1
        return self._chats[number % len(self._chats)].replace(MARK, f"{number:0{len(MARK)}}").encode()


async def measure(rounds: int) -> dict[str, dict[str, Cost]]:
    """Return costs by size and side.

    Raises:
        BenchError: a part did not start, or a request failed.
    """
    costs = {size: {side: Cost() for side in SIDES} for size in SIZES}
    bodies = {(size, side): Chats(SIZES[size]) for size in SIZES for side in SIDES}
    timeout = aiohttp.ClientTimeout(total=60)
    async with running_sites(SIDES) as (_, sites), aiohttp.ClientSession(timeout=timeout) as http:
        for (_, side), body in bodies.items():
            await _ask(http, sites[side], body, WARM_UP_REQUESTS)
        for _ in range(rounds):
            for (size, side), body in bodies.items():
                cost, service = costs[size][side], sites[side].service
                assert service is not None
                before = cpu_seconds(service.pid)
                await _ask(http, sites[side], body, TURN_REQUESTS)
                cost.cpu_seconds += cpu_seconds(service.pid) - before
                cost.requests += TURN_REQUESTS
    return costs


async def _ask(http: aiohttp.ClientSession, site: Running, bodies: Chats, count: int) -> None:
    left = iter(range(count))

    async def client() -> None:
        for _ in left:
            async with http.post(
                f"http://{site.address}/v1/chat/completions",
                data=bodies.body(),
                headers={"content-type": "application/json"},
            ) as response:
                text = await response.text()
                if response.status != 200:
                    raise BenchError(f"{site.side}: a request got {response.status}: {text[:200]}")

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


def result_of(costs: Mapping[str, Mapping[str, Cost]]) -> dict[str, Any]:
    """Return what `--json` prints next to the targets, in microseconds of CPU for each request."""
    return {
        size: {
            **{f"{side}_us": cost.microseconds for side, cost in at.items()},
            "requests": at[BARE].requests,
        }
        for size, at in costs.items()
    }


def targets_of(costs: Mapping[str, Mapping[str, Cost]]) -> Iterator[Target]:
    """Compare with the targets."""
    for size, at in costs.items():
        for side, most in MOST_OVER_BARE.items():
            over = report.ratio(at[side].microseconds, at[BARE].microseconds)
            yield report.at_most(f"cpu_{size}_{side}_over_bare", over, most[size])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.request_cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=10, help="turns of each kind; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args(arguments)
    costs = processes.run(measure(max(1, args.rounds)))
    result = result_of(costs)
    for size, figures in result.items():
        report.progress(f"{size:5} " + "  ".join(f"{name} {value}" for name, value in figures.items()))
    return report.finish(result, list(targets_of(costs)), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
