"""What one request costs the ext_proc process in CPU, beside a bare gRPC server that answers a constant.

The real Envoy, configured by the product, asks ext_proc for each chat request; engines are answers of another
Envoy. Two sites differ only in who answers Envoy: the product's worker, or a `grpc.aio` server that reads
bytes and writes the same bytes each time. Short turns at one and the other follow each other in one run, so
that noise of the host meets both. CPU is that of all threads of the process, by the kernel's scheduler. The
difference is Warmroute's own work; the rest is what gRPC and Python's loop take for a stream.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import grpc
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from bench.handshake import cpu_seconds
from bench.reuse_site import engine_listener
from ext_proc.app import ExtProcServer
from ext_proc.server import HEALTH_SERVICES
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.service.serving import GrpcServer
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.signals import SignalTable
from fleet.store import FleetStore, FleetView
from warmroute.demo import processes, report
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import BenchError, Child, free_ports
from xds_server.discovery.server import DiscoveryService
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from fleet.settings import Settings
    from warmroute.demo.report import Target

OURS: Final = "warmroute"
BARE: Final = "bare"
SIZES: Final = {"4kb": 4 * 1024, "48kb": 48 * 1024}
ENGINES: Final = 8
CONVERSATIONS: Final = 64
TURN_REQUESTS: Final = 200
WARM_UP_REQUESTS: Final = 300
"""Before anything is measured, for each site: connections, imports and caches."""
AT_ONCE: Final = 4
MOST_OVER_BARE: Final = {"4kb": 2.8, "48kb": 3.3}
"""Targets: CPU of a request over that at the bare server, which depends little on the host."""
_LISTENING: Final = "listening"
_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"


@dataclass
class Site:
    """One Envoy's listener, discovery and ext_proc socket."""

    name: str
    directory: Path
    listener: str
    engines: Sequence[str]
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        """Make the settings."""
        self.settings = parse_settings(json.dumps(self._written()))

    @property
    def socket(self) -> str:
        """Where Envoy asks."""
        return f"{self.directory}/{self.name}-ext_proc.sock"

    def discovery(self) -> GrpcServer:
        """Return the server of the product's configuration for this Envoy."""
        store = SnapshotStore()
        store.set(build_snapshot(self.settings, membership(self.settings), {}, frozenset()))
        server = GrpcServer("request_cpu", self.settings.xds.address)
        DiscoveryService(store, CollectorRegistry(), 10).register(server.server)
        return server

    def bootstrap(self) -> dict[str, Any]:
        """Return Envoy's bootstrap."""
        return bootstrap(ads_address=self.settings.xds.address, node_id=self.name, node_cluster="bench")

    def _written(self) -> dict[str, Any]:
        return {
            "pools": [{"name": "p", "models": ["m"], "endpoints": [{"address": a} for a in self.engines]}],
            "listeners": [{"name": "l", "address": self.listener, "pool": "p"}],
            "xds": {"address": f"unix:{self.directory}/{self.name}-xds.sock"},
            "ext_proc": {"address": f"unix:{self.socket}"},
            "signals": {"access_log": False},
            "limits": {"drain_seconds": 0.5},
        }


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
    """Chat requests of one size: conversations under one system prompt that take turns, each time longer."""

    def __init__(self, size: int, seed: int = 7) -> None:
        draw = random.Random(seed)
        self._system = prose(draw, size // 4)
        self._histories = [[prose(draw, size // 8) for _ in range(5)] for _ in range(CONVERSATIONS)]
        self._draw, self._next = draw, 0

    def body(self) -> bytes:
        """Return the next request."""
        history = self._histories[self._next % CONVERSATIONS]
        self._next += 1
        messages = [{"role": "system", "content": self._system}]
        roles = ("user", "assistant")
        messages += [{"role": roles[n % 2], "content": text} for n, text in enumerate(history)]
        messages[-1]["content"] += f" {self._draw.random()}"
        return json.dumps({"model": "m", "temperature": 0.2, "messages": messages, "stream": True}).encode()


def prose(draw: random.Random, size: int) -> str:
    """Return text of a size, with quotes and line ends in it."""
    words = (
        "the",
        "cache",
        "of",
        "a",
        "prefix",
        "is",
        "warm",
        "where",
        "it",
        "was",
        "computed",
        "\n",
        '"so"',
    )
    pieces, length = [], 0
    while length < size:
        pieces.append(f"{draw.choice(words)} {draw.randrange(100)} ")
        length += len(pieces[-1])
    return "".join(pieces)[:size]


async def measure(rounds: int) -> dict[str, dict[str, Cost]]:
    """Return costs by size and site.

    Raises:
        BenchError: a part did not start, or a request failed.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-request-cpu-"))
    first = free_ports(ENGINES + 2)
    engines = [f"127.0.0.1:{port}" for port in range(first, first + ENGINES)]
    sites = [
        Site(name, directory, f"127.0.0.1:{first + ENGINES + number}", engines)
        for number, name in enumerate((OURS, BARE))
    ]
    children: dict[str, Child] = {}
    try:
        async with contextlib.AsyncExitStack() as stack:
            upstream = {"static_resources": {"listeners": [engine_listener(at) for at in engines]}}
            engine = await stack.enter_async_context(EnvoyProcess(upstream, directory=directory))
            await engine.wait_ready(listeners=ENGINES)
            for site in sites:
                argv = [
                    sys.executable,
                    "-m",
                    "bench.request_cpu",
                    "--serve",
                    site.name,
                    site.socket,
                    *engines,
                ]
                child = children[site.name] = Child(site.name, argv, directory)
                await child.wait_for(lambda child=child: child.line_after(_LISTENING) is not None)
                server = site.discovery()
                await server.start()
                stack.push_async_callback(server.stop, 0)
                envoy = await stack.enter_async_context(EnvoyProcess(site.bootstrap(), directory=directory))
                await envoy.wait_ready()
            return await _turns(sites, {name: child.pid for name, child in children.items()}, rounds)
    finally:
        for child in children.values():
            child.kill()
        shutil.rmtree(directory, ignore_errors=True)


async def _turns(sites: Sequence[Site], pids: dict[str, int], rounds: int) -> dict[str, dict[str, Cost]]:
    costs = {size: {site.name: Cost() for site in sites} for size in SIZES}
    chats = {(size, site.name): Chats(SIZES[size]) for size in SIZES for site in sites}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        for size in SIZES:
            for site in sites:
                await _ask(http, site, chats[size, site.name], WARM_UP_REQUESTS)
        for _ in range(rounds):
            for size in SIZES:
                for site in sites:
                    cost, before = costs[size][site.name], cpu_seconds(pids[site.name])
                    await _ask(http, site, chats[size, site.name], TURN_REQUESTS)
                    cost.cpu_seconds += cpu_seconds(pids[site.name]) - before
                    cost.requests += TURN_REQUESTS
    return costs


async def _ask(http: aiohttp.ClientSession, site: Site, chats: Chats, count: int) -> None:
    left = iter(range(count))

    async def client() -> None:
        for _ in left:
            async with http.post(
                f"http://{site.listener}/v1/chat/completions",
                data=chats.body(),
                headers={"content-type": "application/json"},
            ) as response:
                text = await response.text()
                if response.status != 200:
                    raise BenchError(f"{site.name}: a request got {response.status}: {text[:200]}")

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


async def serve(name: str, socket: str, engines: Sequence[str]) -> None:
    """Answer Envoy on a socket, until killed."""
    if name == OURS:
        settings = Site(name, Path(socket).parent, "127.0.0.1:1", engines).settings
        fleet = FleetStore()
        members = membership(settings)
        fleet.publish(FleetView(members, {}, SignalTable.unknown(members.addresses)))
        worker = ExtProcServer(settings, fleet, CollectorRegistry(), TracerProvider(), follow=False)
        await worker.start()
    else:
        bare = GrpcServer(name, f"unix:{socket}", services=HEALTH_SERVICES)
        handlers = {"Process": grpc.stream_stream_rpc_method_handler(_constant)}
        bare.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        await bare.start()
        await bare.set_ready(ready=True)
    print(f"{_LISTENING} {socket}", flush=True)
    await asyncio.Event().wait()


_UNCHANGED: Final = pb.ProcessingResponse(request_body=pb.BodyResponse(response=pb.CommonResponse()))
_ANSWER: Final = _UNCHANGED.SerializeToString()


async def _constant(_messages: Any, context: Any) -> None:
    with contextlib.suppress(grpc.aio.InternalError):
        while await context.read() is not grpc.aio.EOF:
            await context.write(_ANSWER)


def result_of(costs: dict[str, dict[str, Cost]]) -> dict[str, Any]:
    """Return what `--json` prints beside the targets, in microseconds of CPU for each request."""
    return {
        size: {
            "warmroute_us": at[OURS].microseconds,
            "bare_us": at[BARE].microseconds,
            "own_us": round((at[OURS].microseconds or 0.0) - (at[BARE].microseconds or 0.0), 1),
            "requests": at[OURS].requests,
        }
        for size, at in costs.items()
    }


def wanted_of(costs: dict[str, dict[str, Cost]]) -> Iterator[Target]:
    """Compare with the targets."""
    for size, at in costs.items():
        over = report.ratio(at[OURS].microseconds, at[BARE].microseconds)
        yield report.at_most(f"cpu_{size}_over_bare", over, MOST_OVER_BARE[size])


def main(given: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.request_cpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=10, help="turns of each kind; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    if args.serve:
        name, socket, *engines = args.serve
        processes.run(serve(name, socket, engines))
        return 0
    costs = processes.run(measure(max(1, args.rounds)))
    result = result_of(costs)
    for size, figures in result.items():
        report.progress(f"{size:5} " + "  ".join(f"{name} {value}" for name, value in figures.items()))
    return report.finish(result, list(wanted_of(costs)), as_json=args.json)


if __name__ == "__main__":
    sys.exit(report.command(main))
