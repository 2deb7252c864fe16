"""One server under measurement: Warmroute's discovery service, or the least that grpc.aio can do.

A child of `bench.xds_scale`, with orders by lines on its standard input. All kinds run on uvloop with the
product's gRPC options and garbage collection. The discovery service runs on the lane, and on grpcio.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

import grpc
from prometheus_client import CollectorRegistry

from bench.peer import answer_all
from bench.xds_client import METHODS
from bench.xds_fleet import Fleet, names_by_type
from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.lane.context import Services
from fleet.names import TYPE_ENDPOINT
from fleet.service.collector import exempt_from_collection
from fleet.service.serving import GrpcServer
from xds_server.discovery.server import DiscoveryService
from xds_server.discovery.status import DiscoveryObserver
from xds_server.doors import lane_server
from xds_server.snapshot.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from fleet.lane.server import LaneServer
    from xds_server.discovery.client import Client
    from xds_server.snapshot.snapshot import Snapshot

_MAX_STREAMS: Final = 100_000
_NONCE: Final = "0123abcd-{:02d}-{:02d}"
"""About as long as the discovery service's own."""
_AIO: Any = grpc.aio
"""Untyped: the stubs lack the end-of-stream mark."""


class Counted:
    """How many answers of a type have come, with a way to wait for a number."""

    def __init__(self) -> None:
        self._count = 0
        self._expected = 0
        self._reached = asyncio.Event()

    def add(self) -> None:
        """Count one."""
        self._count += 1
        if self._count >= self._expected:
            self._reached.set()

    def expect(self, more: int) -> None:
        """Begin to wait for this many."""
        self._count, self._expected = 0, more
        self._reached.clear()

    async def wait(self) -> None:
        """Return when they have come."""
        await self._reached.wait()


class Kind(Protocol):
    """What a server serves."""

    acks: Counted

    def prepare(self, numbers: Sequence[int]) -> None:
        """Do beforehand what is not to be measured."""

    def build(self, number: int) -> Any:
        """Return what weight change `number` makes of the content."""

    def push(self, built: Any) -> None:
        """Tell every client of it."""


class Ours(DiscoveryObserver):
    """The discovery service, from weights to the last ACK."""

    def __init__(self, server: grpc.aio.Server | Services, fleet: Fleet) -> None:
        self.acks = Counted()
        self._fleet = fleet
        self._store = SnapshotStore()
        self._store.set(fleet.snapshot(0))
        service = DiscoveryService(self._store, CollectorRegistry(), _MAX_STREAMS, observers=[self])
        service.register(server)

    def acked(self, client: Client, type_url: str, version: str) -> None:  # noqa: ARG002 - the observer's
        """Count the answers to pushes of endpoints."""
        if type_url == TYPE_ENDPOINT:
            self.acks.add()

    def prepare(self, numbers: Sequence[int]) -> None:
        """Nothing: all of its work counts."""

    def build(self, number: int) -> Snapshot:
        """Return the snapshot."""
        return self._fleet.snapshot(number)

    def push(self, built: Snapshot) -> None:
        """Set the snapshot."""
        self._store.set(built)


class Bare:
    """Writes ready bytes to every stream and reads one message back: no state, no protocol."""

    def __init__(self, server: grpc.aio.Server, fleet: Fleet, variant: str) -> None:
        self.acks = Counted()
        self._fleet = fleet
        self._variant = variant
        self._ready: dict[int, bytes] = {}
        self._current = b""
        self._streams: set[asyncio.Event] = set()
        service, _, method = METHODS[variant].strip("/").partition("/")
        handler = grpc.stream_stream_rpc_method_handler(self._serve)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))

    def prepare(self, numbers: Sequence[int]) -> None:
        """Make the bytes of each push."""
        self._ready = {number: self.message(number) for number in numbers}

    def message(self, number: int) -> bytes:
        """Return the bytes that the discovery service would write for weight change `number`."""
        snapshot = self._fleet.snapshot(number)
        version, nonce = snapshot.version(TYPE_ENDPOINT), _NONCE.format(number % 100, 12)
        resources = snapshot.of_type(TYPE_ENDPOINT).values()
        if self._variant == "sotw":
            return bytes(
                discovery_pb2.DiscoveryResponse(
                    version_info=version,
                    type_url=TYPE_ENDPOINT,
                    nonce=nonce,
                    resources=[resource.body for resource in resources],
                ).SerializeToString()
            )
        wrapped = [
            discovery_pb2.Resource(name=entry.name, version=entry.version, resource=entry.body)
            for entry in resources
        ]
        return bytes(
            discovery_pb2.DeltaDiscoveryResponse(
                system_version_info=version, type_url=TYPE_ENDPOINT, nonce=nonce, resources=wrapped
            ).SerializeToString()
        )

    def build(self, number: int) -> bytes:
        """Return the bytes made before."""
        return self._ready[number]

    def push(self, built: bytes) -> None:
        """Wake every stream."""
        self._current = built
        for wake in self._streams:
            wake.set()

    async def _serve(self, _: Any, context: Any) -> None:
        wake = asyncio.Event()
        if not self._current:
            self._current = self.message(0)
        wake.set()
        self._streams.add(wake)
        try:
            while await context.read() is not _AIO.EOF:
                self.acks.add()
                await wake.wait()
                wake.clear()
                await context.write(self._current)
        finally:
            self._streams.discard(wake)


class Server:
    """What the parent may ask of it."""

    def __init__(self, kind: str, variant: str, address: str, endpoints: int) -> None:
        fleet = Fleet(endpoints)
        self._names = names_by_type(fleet.snapshot(0))
        self._grpc: GrpcServer | LaneServer
        self._kind: Kind
        if kind == "ours":
            services = Services()
            self._kind = Ours(services, fleet)
            self._grpc = lane_server(kind, address, services)
        else:
            self._grpc = GrpcServer(kind, address)
            server = self._grpc.server
            self._kind = Ours(server, fleet) if kind == "grpcio" else Bare(server, fleet, variant)

    def verbs(self) -> Mapping[str, Callable[..., Awaitable[dict[str, Any]]]]:
        """Return the commands by name."""
        return {"start": self.start, "push": self.push, "stop": self.stop}

    async def start(self) -> dict[str, Any]:
        """Serve; return the resource names of a client's subscriptions."""
        await self._grpc.start()
        exempt_from_collection()
        return {"names": self._names}

    async def push(self, numbers: list[int], clients: int) -> dict[str, Any]:
        """Make each change in turn, the next when every client has answered; return CPU time and moments."""
        self._kind.prepare(numbers)
        pushes = []
        for number in numbers:
            self._kind.acks.expect(clients)
            began = time.process_time()
            built = self._kind.build(number)
            built_cpu, set_at = time.process_time(), time.monotonic()
            self._kind.push(built)
            await self._kind.acks.wait()
            pushes.append(
                {
                    "set_at": set_at,
                    "cpu_seconds": time.process_time() - built_cpu,
                    "build_cpu_seconds": built_cpu - began,
                }
            )
        return {"pushes": pushes}

    async def stop(self) -> dict[str, Any]:
        """End every stream."""
        await self._grpc.stop(0)
        return {}


def main() -> int:
    """Run as a child process."""
    parser = argparse.ArgumentParser(prog="python -m bench.xds_scale_server", description=__doc__)
    parser.add_argument("kind", choices=("ours", "grpcio", "bare"))
    parser.add_argument("variant", choices=tuple(METHODS))
    parser.add_argument("address")
    parser.add_argument("endpoints", type=int)
    args = parser.parse_args()
    return answer_all(lambda: Server(args.kind, args.variant, args.address, args.endpoints).verbs())


if __name__ == "__main__":
    sys.exit(main())
