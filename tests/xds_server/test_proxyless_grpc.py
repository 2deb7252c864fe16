"""gRPC's own xDS client, the real one, against our discovery service and three engines."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import yaml
from prometheus_client import CollectorRegistry

from fleet.names import RESOURCE_TYPES, TYPE_ENDPOINT, TYPE_LISTENER
from fleet.settings import Settings, parse_settings
from fleet.settings.membership import membership
from tests.xds_server.transports import server_of
from xds_server.discovery.server import DiscoveryService
from xds_server.envoy.build import build_snapshot
from xds_server.envoy.proxyless import grpc_bootstrap
from xds_server.snapshot.snapshot import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from xds_server.snapshot.snapshot import Snapshot

# Reads a line of JSON, makes that many calls, prints who answered how often.
CLIENT = """
import collections, json, sys
import grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    echo = channel.unary_unary("/test.Engine/Who", request_serializer=None, response_deserializer=None)
    for line in sys.stdin:
        order = json.loads(line)
        answers = collections.Counter()
        for _ in range(order["calls"]):
            try:
                answer = echo(b"", timeout=60, wait_for_ready=True, metadata=order["metadata"]).decode()
            except grpc.RpcError as error:
                answer = f"{error.code().name}: {error.details()}"
            answers[answer] += 1
        print(json.dumps(answers), flush=True)
"""
CALLS = 600


class Client:
    """A process of its own: the bootstrap is read once a process, before the first channel."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def calls(self, count: int = CALLS, **metadata: str) -> dict[str, int]:
        """Call one after the other; return who answered how often."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"calls": count, "metadata": list(metadata.items())}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        return json.loads(line)

    async def until(self, reached: Callable[[dict[str, int]], bool], count: int = CALLS) -> None:
        """Call until who answers is as it should be: a push arrives a moment after it is made."""
        async with asyncio.timeout(60):
            while not reached(await self.calls(count)):
                pass


@asynccontextmanager
async def engine() -> AsyncIterator[str]:
    """An engine that answers with its own address."""
    server = grpc.aio.server()
    own: list[bytes] = []

    async def who(_: bytes, context: Any) -> bytes:
        return own[0]

    handlers = {"Who": grpc.unary_unary_rpc_method_handler(who)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Engine", handlers),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    own.append(address.encode())
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


@pytest.fixture
async def engines() -> AsyncIterator[list[str]]:
    async with AsyncExitStack() as stack:
        yield sorted([await stack.enter_async_context(engine()) for _ in range(3)])


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Callable[[str, dict[str, Any]], Any]]:
    """Start clients of a target with a bootstrap."""
    started: list[asyncio.subprocess.Process] = []

    async def start(target: str, bootstrap: dict[str, Any]) -> Client:
        path = tmp_path / f"bootstrap{len(started)}.json"
        path.write_text(json.dumps(bootstrap))
        environment = {**os.environ, "GRPC_XDS_BOOTSTRAP": str(path)}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, target, stdin=-1, stdout=-1, env=environment
        )
        started.append(process)
        return Client(process)

    yield start
    for process in started:
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(process.wait(), 60)


def make_settings(addresses: list[str]) -> Settings:
    """A pool over two zones of unequal size, and an Envoy listener that has the pool's very name."""
    endpoints = [
        {"address": address, "locality": {"region": "r", "zone": "b" if index else "a"}}
        for index, address in enumerate(addresses)
    ]
    listener = {"name": "llm", "address": "127.0.0.1:8080", "pool": "llm"}
    return parse_settings(
        yaml.safe_dump({"pools": [{"name": "llm", "endpoints": endpoints}], "listeners": [listener]})
    )


def make_snapshot(
    settings: Settings, weights: tuple[int, ...], unhealthy: tuple[str, ...] = (), **more: Any
) -> Snapshot:
    members = membership(settings)
    addresses = sorted(endpoint.address for endpoint in members.endpoints)
    weight_of = dict(zip(addresses, weights, strict=True))
    return build_snapshot(settings, members, weight_of, frozenset(unhealthy), **more)


def follows(addresses: list[str], *weights: int) -> Callable[[dict[str, int]], bool]:
    """Whether each share is within 8 percentage points of its weight: four deviations of 600 calls."""

    def reached(answers: dict[str, int]) -> bool:
        assert set(answers) <= set(addresses), "a call failed"
        expected = [weight / sum(weights) for weight in weights]
        return all(
            abs(answers.get(address, 0) / CALLS - share) < 0.08
            for address, share in zip(addresses, expected, strict=True)
        )

    return reached


def bootstrap_of(target: str) -> dict[str, Any]:
    return grpc_bootstrap(ads_address=target, node_id="caller", node_cluster="tests")


async def test_grpc_shares_its_calls_by_the_weights_that_envoys_get(
    serve: Any, client: Any, engines: list[str]
) -> None:
    running = await serve()
    settings = make_settings(engines)
    running.store.set(make_snapshot(settings, (7000, 2000, 1000)))
    caller = await client("xds:///llm", bootstrap_of(running.target))
    await caller.until(follows(engines, 7000, 2000, 1000))

    running.store.set(make_snapshot(settings, (1000, 3000, 6000)))
    await caller.until(follows(engines, 1000, 3000, 6000))

    gone = make_settings(engines[:2])
    running.store.set(make_snapshot(gone, (5000, 5000)))
    await caller.until(lambda answers: engines[2] not in answers)
    assert set(await caller.calls()) == set(engines[:2])

    for type_url in RESOURCE_TYPES:
        assert running.value("nacks_total", type=type_url.rpartition(".")[2]) == 0
    (status,) = running.service.clients()
    assert status.node_id == "caller"

    def acked() -> str | None:
        (status,) = running.service.clients()
        return {entry.type_url: entry.version_acked for entry in status.types}[TYPE_ENDPOINT]

    async with asyncio.timeout(60):
        while acked() != running.store.snapshot.version(TYPE_ENDPOINT):
            await asyncio.sleep(0.01)


async def test_grpc_leaves_alone_who_is_unhealthy_or_drains(
    serve: Any, client: Any, engines: list[str]
) -> None:
    running = await serve()
    settings = make_settings(engines)
    running.store.set(make_snapshot(settings, (1, 1, 1), (engines[1],)))
    caller = await client("xds:///llm", bootstrap_of(running.target))
    assert set(await caller.calls()) == {engines[0], engines[2]}

    drains = make_snapshot(settings, (1, 1, 1), draining=frozenset([engines[0]]))
    running.store.set(drains)
    await caller.until(lambda answers: set(answers) == set(engines[1:]))
    assert set(await caller.calls()) == set(engines[1:])


async def test_grpc_keeps_a_session_on_one_engine_by_any_bootstrap(
    serve: Any, client: Any, engines: list[str]
) -> None:
    """A bootstrap that is not ours spells the listener's full name in the target."""
    running = await serve()
    running.store.set(make_snapshot(make_settings(engines), (1, 1, 1)))
    bootstrap = bootstrap_of(running.target)
    del bootstrap["client_default_listener_resource_name_template"]
    caller = await client("xds:///grpc/llm", bootstrap)
    await caller.until(lambda answers: set(answers) == set(engines))
    for session in ("one", "two"):
        assert len(await caller.calls(100, **{"x-session-id": session})) == 1
    assert running.value("nacks_total", type=TYPE_LISTENER.rpartition(".")[2]) == 0


async def test_grpc_goes_on_without_us_and_follows_us_again(
    serve: Any, client: Any, engines: list[str]
) -> None:
    running = await serve()
    settings = make_settings(engines)
    running.store.set(make_snapshot(settings, (8000, 1000, 1000)))
    caller = await client("xds:///llm", bootstrap_of(running.target))
    await caller.until(follows(engines, 8000, 1000, 1000))
    await running.server.stop(0)
    await caller.until(follows(engines, 8000, 1000, 1000))

    store = SnapshotStore()
    store.set(make_snapshot(settings, (1000, 1000, 8000)))
    service = DiscoveryService(store, CollectorRegistry(), 10)
    server = server_of(running.transport, running.target, service.register)
    await server.start()
    try:
        # Its back-off begins at a second.
        await caller.until(follows(engines, 1000, 1000, 8000))
    finally:
        await server.stop(0)
