"""Sites that differ only in the service that Envoy asks: nobody, a server that answers a constant, or ours.

Each site has the real Envoy, with the product's configuration. Engines are answers of one more Envoy.
"""

from __future__ import annotations

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

import grpc
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from bench.reuse_site import engine_listener
from bench.wrk import MARK
from ext_proc.app import ExtProcServer
from ext_proc.server import HEALTH_NAMES, SERVICE
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.lane.server import LaneServer
from fleet.service.serving import GrpcServer
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.signals import SignalTable
from fleet.store import FleetStore, FleetView
from warmroute.demo import envoy_alone, processes
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import Child, free_ports
from xds_server.discovery.server import DiscoveryService
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from fleet.lane.method import Call
    from fleet.settings import Settings

ALONE: Final = "alone"
"""Envoy's static configuration and its own policy, without ext_proc."""
BARE: Final = "bare"
"""A `grpc.aio` server that reads bytes and writes constants."""
GRPCIO: Final = "grpcio"
LANE: Final = "lane"
BARE_LANE: Final = "bare_lane"
"""The bare server's answers on the lane: the transport without our own work."""
SIDES: Final = (ALONE, BARE, GRPCIO, LANE)
ENGINES: Final = 8
FAILURES: Final = ("spurious_msgs_received", "streams_failed", "failure_mode_allowed", "message_timeouts")
"""Envoy's counters of what went wrong with ext_proc."""
_LISTENING: Final = "listening"
_POOL: Final = "p"
_LISTENER: Final = "l"
_CONVERSATIONS: Final = {4 * 1024: 64, 48 * 1024: 64, 220 * 1024: 16, 6 * 1024 * 1024: 4}
"""By bytes of a body: as many as wrk can keep in memory."""


@dataclass
class Site:
    """Addresses and settings of one side."""

    side: str
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
        return f"{self.directory}/{self.side}-ext_proc.sock"

    @contextlib.asynccontextmanager
    async def running(self, workers: int = 1) -> AsyncIterator[Running]:
        """Run service, discovery and Envoy."""
        async with contextlib.AsyncExitStack() as stack:
            if self.side == ALONE:
                service = None
                configuration = envoy_alone.bootstrap(self.settings.pools[0], self.settings.listeners[0])
            else:
                service = await self.start_service(stack)
                store = SnapshotStore()
                store.set(build_snapshot(self.settings, membership(self.settings), {}, frozenset()))
                server = GrpcServer("discovery", self.settings.xds.address)
                DiscoveryService(store, CollectorRegistry(), 10).register(server.server)
                await server.start()
                stack.push_async_callback(server.stop, 0)
                configuration = bootstrap(
                    ads_address=self.settings.xds.address, node_id=self.side, node_cluster="bench"
                )
            envoy = await stack.enter_async_context(
                EnvoyProcess(configuration, directory=self.directory, concurrency=workers)
            )
            await envoy.wait_ready()
            yield Running(self.side, self.listener, envoy, service)

    async def start_service(self, stack: contextlib.AsyncExitStack) -> Child:
        """Run the service in a process of its own until the stack ends."""
        argv = [sys.executable, "-m", "bench.lane_site", self.side, str(self.directory), *self.engines]
        child = Child(self.side, argv, self.directory)
        stack.callback(child.kill)
        await child.wait_for(lambda: child.line_after(_LISTENING) is not None)
        return child

    def _written(self) -> dict[str, Any]:
        return {
            "pools": [
                {"name": _POOL, "models": ["m"], "endpoints": [{"address": at} for at in self.engines]}
            ],
            "listeners": [{"name": _LISTENER, "address": self.listener, "pool": _POOL}],
            "xds": {"address": f"unix:{self.directory}/{self.side}-xds.sock"},
            "ext_proc": {"address": f"unix:{self.socket}", **_transport(self.side)},
            "signals": {"access_log": False},
            "limits": {"drain_seconds": 0.5},
        }


def _transport(side: str) -> dict[str, str]:
    return {"transport": side} if side in {GRPCIO, LANE} else {}


@dataclass(frozen=True)
class Running:
    """One side that runs."""

    side: str
    address: str
    """Envoy's, for clients."""
    envoy: EnvoyProcess
    service: Child | None
    """None for Envoy alone."""

    async def sent(self) -> int:
        """Requests that Envoy has sent to engines."""
        stats = await self.envoy.stats(f"cluster.{_POOL}.upstream_rq_total$")
        return sum(stats.values())

    async def failures(self) -> dict[str, int]:
        """What Envoy counts of ext_proc: streams, and failures by name."""
        stats = await self.envoy.stats(f"http.{_LISTENER}.ext_proc.")
        counts = {name.rpartition(".")[2]: value for name, value in stats.items()}
        return {name: counts.get(name, 0) for name in ("streams_started", *FAILURES)}


@contextlib.asynccontextmanager
async def running_sites(sides: Sequence[str]) -> AsyncIterator[tuple[Path, dict[str, Running]]]:
    """Run the sides next to one another; yields a folder for files and the sides by name.

    Raises:
        BenchError: a part did not start.
    """
    directory = Path(tempfile.mkdtemp(prefix="warmroute-lane-"))
    try:
        async with contextlib.AsyncExitStack() as stack:
            first = free_ports(ENGINES + len(sides))
            engines = [f"127.0.0.1:{port}" for port in range(first, first + ENGINES)]
            upstream = {"static_resources": {"listeners": [engine_listener(at) for at in engines]}}
            engine = await stack.enter_async_context(EnvoyProcess(upstream, directory=directory))
            await engine.wait_ready(listeners=ENGINES)
            running = {}
            for number, side in enumerate(sides):
                site = Site(side, directory, f"127.0.0.1:{first + ENGINES + number}", engines)
                running[side] = await stack.enter_async_context(site.running())
            yield directory, running
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def running_service(side: str) -> AsyncIterator[tuple[str, int]]:
    """Run the service of one side, without an Envoy; yields its socket and its process id.

    Raises:
        BenchError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="warmroute-lane-") as directory:
        async with contextlib.AsyncExitStack() as stack:
            site = Site(side, Path(directory), "127.0.0.1:1", ["127.0.0.1:9"])
            yield site.socket, (await site.start_service(stack)).pid


def chats(size: int, *, stream: bool = True, seed: int = 7) -> Iterator[str]:
    """Make chat requests of about `size` bytes: conversations under one system prompt.

    Each ends with wrk's mark, so that no two requests are equal.
    """
    draw = random.Random(seed)
    system = prose(draw, size // 4)
    for _ in range(_CONVERSATIONS[size]):
        messages = [{"role": "system", "content": system}]
        messages += [
            {"role": ("user", "assistant")[turn % 2], "content": prose(draw, size // 8)} for turn in range(5)
        ]
        messages[-1]["content"] += f" {MARK}"
        yield json.dumps({"model": "m", "temperature": 0.2, "messages": messages, "stream": stream})


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
    # As long as its words are short.
    return " ".join(f"{draw.choice(words)} {draw.randrange(100)}" for _ in range(size // 4))[:size]


async def serve(side: str, directory: Path, engines: Sequence[str]) -> None:
    """Answer Envoy on the side's socket, until killed."""
    site = Site(side, directory, "127.0.0.1:1", engines)
    if side == BARE:
        bare = GrpcServer(side, f"unix:{site.socket}", health=HEALTH_NAMES)
        handlers = {"Process": grpc.stream_stream_rpc_method_handler(_constant)}
        bare.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        await bare.start()
        await bare.set_ready(ready=True)
    elif side == BARE_LANE:
        method = {f"/{SERVICE}/Process": _Constant}
        lane = LaneServer(side, f"unix:{site.socket}", site.settings.connections, method, health=HEALTH_NAMES)
        await lane.start()
        await lane.set_ready(ready=True)
    else:
        fleet = FleetStore()
        members = membership(site.settings)
        fleet.publish(FleetView(members, {}, SignalTable.unknown(members.addresses)))
        worker = ExtProcServer(site.settings, fleet, CollectorRegistry(), TracerProvider(), follow=False)
        await worker.start()
    print(f"{_LISTENING} {site.socket}", flush=True)
    await asyncio.Event().wait()


_HEADERS_TAG: Final = pb.ProcessingRequest.REQUEST_HEADERS_FIELD_NUMBER << 3 | 2
"""A message with headers, as Envoy's for large bodies, begins with this byte; others are bodies."""
_ON_HEADERS: Final = pb.ProcessingResponse(
    request_headers=pb.HeadersResponse(response=pb.CommonResponse())
).SerializeToString()
_ON_BODY: Final = pb.ProcessingResponse(
    request_body=pb.BodyResponse(response=pb.CommonResponse())
).SerializeToString()


async def _constant(_messages: Any, context: Any) -> None:
    with contextlib.suppress(grpc.aio.InternalError):
        while (data := await context.read()) is not grpc.aio.EOF:
            await context.write(_answer(data))


class _Constant:
    """The same on the lane."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def message(self, data: bytes) -> None:
        """Answer one message."""
        self._call.write(_answer(data))

    def half_closed(self) -> None:
        """End the call, too."""
        self._call.end()

    silent = half_closed

    def ended(self, reason: str) -> None:
        """Nothing is kept."""


def _answer(data: bytes) -> bytes:
    return _ON_HEADERS if data[0] == _HEADERS_TAG else _ON_BODY


if __name__ == "__main__":
    processes.run(serve(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
