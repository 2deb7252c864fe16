"""CSDS over real gRPC: versions that each client was sent, ACKed and NACKed."""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import grpc
import msgspec
import pytest

from fleet.endpoint import Locality
from fleet.envoy_api.service.status.v3 import csds_pb2, csds_pb2_grpc
from fleet.errors import PeerError
from fleet.names import RESOURCE_TYPES, TYPE_CLUSTER, TYPE_ENDPOINT
from fleet.service.turns import SLICE_SECONDS
from tests.xds_server.transports import server_of
from xds_server.discovery import csds
from xds_server.discovery.client import Client
from xds_server.discovery.csds import (
    MAX_BYTES,
    MAX_CALLS,
    MAX_CLIENTS,
    MAX_REQUEST_BYTES,
    ClientStatusService,
)
from xds_server.discovery.progress import Progress
from xds_server.discovery.status import ClientStatus, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class World:
    """A discovery service, the status service that looks at it, and a channel to the latter."""

    def __init__(self, running: Any, service: ClientStatusService, channel: Any) -> None:
        self.running = running
        self.service = service
        self.channel = channel
        self.stub = csds_pb2_grpc.ClientStatusDiscoveryServiceStub(channel)

    async def connect(self, node: str) -> Any:
        """A client that was sent clusters and ACKed them."""
        peer = self.running.connect("sotw", "ads", node)
        await peer.ask(TYPE_CLUSTER)
        await peer.receive(TYPE_CLUSTER)
        return peer

    async def fetch(self, **request: Any) -> Any:
        return await self.stub.FetchClientStatus(csds_pb2.ClientStatusRequest(**request))

    async def fetch_until(self, *statuses: int) -> Any:
        """Fetch the only client until its types are in these states: an answer is heard a moment later."""
        async with asyncio.timeout(60):
            while True:
                # A response is noted just after it is written, so its client may be ahead of that.
                for config in (await self.fetch()).config:
                    if [entry.config_status for entry in config.generic_xds_configs] == list(statuses):
                        return config
                await asyncio.sleep(0.01)


@pytest.fixture
async def world(serve: Any, xds: Any, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    progress = Progress(100)
    running = await serve(observers=[progress])
    running.store.set(xds.snapshot(xds.cluster("llm"), xds.assignment("llm", 1, 2)))
    service = ClientStatusService(running.service, progress, max_clients=3)
    target = f"unix:{tmp_path}/csds.sock"
    server = server_of(request.node.callspec.params["serve"], target, service.register)
    await server.start()
    async with grpc.aio.insecure_channel(target) as channel:
        yield World(running, service, channel)
    await server.stop(0)


async def test_versions_times_and_errors_are_reported(world: World, xds: Any) -> None:
    before = time.time()
    peer = await world.connect("node-1")
    await peer.ask(TYPE_ENDPOINT, ["llm"])
    await peer.receive(TYPE_ENDPOINT, error="weights are odd")
    config = await world.fetch_until(csds_pb2.SYNCED, csds_pb2.ERROR)

    assert (config.node.id, config.node.cluster) == ("node-1", "fleet")
    clusters, endpoints = config.generic_xds_configs
    snapshot = world.running.store.snapshot
    assert (clusters.type_url, clusters.version_info) == (TYPE_CLUSTER, snapshot.version(TYPE_CLUSTER))
    assert before - 1 < clusters.last_updated.ToNanoseconds() / 1e9 < time.time() + 1
    assert not clusters.HasField("error_state")
    assert (endpoints.type_url, endpoints.version_info) == (TYPE_ENDPOINT, "")
    assert endpoints.error_state.details == "weights are odd"
    assert endpoints.error_state.version_info == snapshot.version(TYPE_ENDPOINT)
    assert endpoints.error_state.HasField("last_update_attempt")
    assert not endpoints.HasField("last_updated")
    assert config.node.metadata["warmroute.lag_seconds"] > 0

    world.running.store.set(xds.snapshot(xds.cluster("llm"), xds.assignment("llm", 2, 2)))
    await peer.receive(TYPE_ENDPOINT)
    config = await world.fetch_until(csds_pb2.SYNCED, csds_pb2.SYNCED)
    assert config.node.metadata["warmroute.lag_seconds"] == 0
    assert not config.generic_xds_configs[1].HasField("error_state")


async def test_silent_client_is_stale_until_it_disconnects(world: World, xds: Any) -> None:
    peer = world.running.connect("delta", "ads", "node-1")
    await peer.ask(TYPE_CLUSTER)
    config = await world.fetch_until(csds_pb2.STALE)
    assert config.generic_xds_configs[0].version_info == ""
    peer.cancel()
    await world.running.idle()
    assert not (await world.fetch()).config


@pytest.mark.parametrize(
    ("matchers", "matched"),
    [
        ([], ["a-1", "a-2", "B-1"]),
        ([{}], ["a-1", "a-2", "B-1"]),
        ([{"node_id": {"exact": "a-1"}}], ["a-1"]),
        ([{"node_id": {"exact": "a"}}], []),
        ([{"node_id": {"exact": "a-1"}}, {"node_id": {"suffix": "B-1"}}], ["a-1", "B-1"]),
        ([{"node_id": {"prefix": "A", "ignore_case": True}}], ["a-1", "a-2"]),
        ([{"node_id": {"contains": "-1"}}], ["a-1", "B-1"]),
    ],
)
async def test_matchers_choose_nodes_and_any_of_them_will_do(
    world: World, matchers: list[Any], matched: list[str]
) -> None:
    for node in ("a-1", "a-2", "B-1"):
        await world.connect(node)
    response = await world.fetch(node_matchers=matchers)
    assert sorted(config.node.id for config in response.config) == sorted(matched)


@pytest.mark.parametrize(
    ("matchers", "text"),
    [
        ([{"node_id": {"safe_regex": {"regex": ".*"}}}], "exact, prefix"),
        ([{"node_id": {}}], "exact, prefix"),
        ([{"node_metadatas": [{"path": [{"key": "a"}]}]}], "node_metadatas"),
        ([{"node_id": {"exact": "x"}}] * 101, "allowed: 100"),
        ([{"node_id": {"contains": "x" * 1025}}], "1025 characters; allowed: 1024"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_rather_than_ignored(
    world: World, matchers: list[Any], text: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.fetch(node_matchers=matchers)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in (refused.value.details() or "")


async def test_answers_are_bounded(world: World) -> None:
    for number in range(4):
        await world.connect(f"node-{number}")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await world.fetch()
    assert "4 clients match; allowed: 3" in (refused.value.details() or "")
    response = await world.fetch(node_matchers=[{"node_id": {"exact": "node-2"}}])
    assert [config.node.id for config in response.config] == ["node-2"]


async def test_a_stream_answers_each_request_and_junk_ends_only_itself(world: World) -> None:
    call = world.stub.StreamClientStatus()
    await call.write(csds_pb2.ClientStatusRequest())
    assert not (await call.read()).config
    await world.connect("node-1")
    await call.write(csds_pb2.ClientStatusRequest())
    assert [config.node.id for config in (await call.read()).config] == ["node-1"]

    raw = world.channel.stream_stream(
        "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus"
    )()
    await raw.write(b"\xff\xff")
    assert await raw.code() is grpc.StatusCode.INVALID_ARGUMENT

    await call.write(csds_pb2.ClientStatusRequest())
    assert (await call.read()).config
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_calls_are_bounded_and_counted_back(world: World) -> None:
    calls = [world.stub.StreamClientStatus() for _ in range(MAX_CALLS)]
    for call in calls:
        await call.write(csds_pb2.ClientStatusRequest())
        await call.read()
    refused = world.stub.StreamClientStatus()
    await refused.write(csds_pb2.ClientStatusRequest())
    assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
        await world.fetch()
    for call in calls:
        call.cancel()
    async with asyncio.timeout(60):
        while world.service._calls:
            await asyncio.sleep(0.01)
    await world.fetch()


async def test_requests_that_wait_for_each_other_are_bounded(world: World) -> None:
    """Each that waits has its bytes: those that are too many are refused at once, not in their turn."""
    async with world.service._answering:
        fetches = [asyncio.create_task(world.fetch()) for _ in range(3 * MAX_CALLS)]
        async with asyncio.timeout(60):
            while sum(task.done() for task in fetches) < 2 * MAX_CALLS:
                await asyncio.sleep(0.01)
        assert world.service._calls == MAX_CALLS
    outcomes = await asyncio.gather(*fetches, return_exceptions=True)
    assert sum(isinstance(one, grpc.aio.AioRpcError) for one in outcomes) == 2 * MAX_CALLS


async def test_a_request_is_bounded_before_it_is_read(world: World) -> None:
    for size, fits in ((MAX_REQUEST_BYTES - 100, True), (MAX_REQUEST_BYTES, False)):
        request = csds_pb2.ClientStatusRequest()
        request.node.user_agent_name = "x" * size
        if fits:
            await world.stub.FetchClientStatus(request)
        else:
            with pytest.raises(grpc.aio.AioRpcError, match=f"allowed: {MAX_REQUEST_BYTES}"):
                await world.stub.FetchClientStatus(request)


async def test_slowest_lag_is_counted_without_a_look_at_the_others(world: World) -> None:
    """Of a node with two streams of one type the newest stream counts."""
    assert world.service.lag() == (0, 0.0)
    peer = await world.connect("node-1")
    await world.fetch_until(csds_pb2.SYNCED)
    assert world.service.lag() == (1, 0.0)
    slow = world.running.connect("delta", "ads", "node-2")
    await slow.ask(TYPE_CLUSTER)
    async with asyncio.timeout(60):
        while world.service.lag()[1] <= 0.0:
            await asyncio.sleep(0.01)
    clients = await world.service.clients()
    assert [client.node_id for client in clients] == ["node-1", "node-2"]
    assert clients[1].lag_seconds is not None
    assert world.service.lag()[1] >= clients[1].lag_seconds
    slow.cancel()
    peer.cancel()
    await world.running.idle()
    assert world.service.lag() == (0, 0.0)


async def test_the_same_goes_out_as_json(world: World) -> None:
    await world.connect("node-1")
    await world.fetch_until(csds_pb2.SYNCED)
    (client,) = msgspec.json.decode(msgspec.json.encode(await world.service.clients()))
    assert (client["node_id"], client["lag_seconds"]) == ("node-1", 0.0)
    (clusters,) = client["types"]
    assert (clusters["state"], clusters["nacked_at"]) == ("synced", None)
    assert clusters["acked_at"] > 0


class Many:
    """As many clients as one answer may have, with names of ordinary length, each with an error or none."""

    def __init__(self, progress: Progress, error: str = "") -> None:
        refused = "1" * 16 if error else ""
        subscription = SimpleNamespace(
            sent_version="0" * 16, acked_version="0" * 16, nacked_version=refused, error=error
        )
        self.summed = 0
        """How many clients were looked at."""
        self._streams: dict[tuple[str, str], Any] = {}
        subscriptions = dict.fromkeys(RESOURCE_TYPES, subscription)
        for number in range(MAX_CLIENTS):
            node = Client(f"gateway-{number:08d}-envoy", "warmroute", Locality("region", "zone", ""))
            stream = SimpleNamespace(name="sotw", client=node, subscriptions=subscriptions)
            self._streams[node.node_id, node.cluster] = stream
            for kind in RESOURCE_TYPES:
                progress.acked(node, kind, "0" * 16)

    def nodes(self) -> list[tuple[str, str]]:
        return list(self._streams)

    def status(self, node: tuple[str, str]) -> ClientStatus:
        self.summed += 1
        return status_of([self._streams[node]])


async def test_max_clients_fit_one_message_and_more_bytes_fail() -> None:
    progress = Progress(MAX_CLIENTS)
    service: Any = ClientStatusService(Many(progress), progress)  # type: ignore[arg-type]
    content = await service.respond(b"")
    assert len(csds_pb2.ClientStatusResponse.FromString(content).config) == MAX_CLIENTS
    assert 1024 * 1024 < len(content) <= MAX_BYTES
    service = ClientStatusService(Many(progress, "x" * 500), progress)  # type: ignore[arg-type]
    with pytest.raises(PeerError, match="by node_matchers"):
        await service.respond(b"")


class Passing:
    """A clock by which every piece of work takes two slices."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 2 * SLICE_SECONDS
        return self._now


async def turns_of(service: Any, message: bytes, count: int) -> int:
    """How often the loop turns while `count` requests are answered at once."""
    turns = 0
    requests = [asyncio.create_task(service.respond(message)) for _ in range(count)]
    while not all(task.done() for task in requests):
        turns += 1
        await asyncio.sleep(0)
    return turns


async def test_response_about_many_clients_yields_to_the_loop() -> None:
    progress = Progress(MAX_CLIENTS)
    service: Any = ClientStatusService(Many(progress), progress, clock=Passing())  # type: ignore[arg-type]
    assert await turns_of(service, b"", 2) >= 4 * MAX_CLIENTS


async def test_a_view_of_many_clients_gives_the_loop_away_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is any of them summed up before its turn."""
    progress = Progress(MAX_CLIENTS)
    many, loop, summed = Many(progress), asyncio.get_running_loop(), [0]
    run_once = loop._run_once  # type: ignore[attr-defined]

    def counted() -> None:
        run_once()
        summed.append(many.summed)

    monkeypatch.setattr(loop, "_run_once", counted)
    service: Any = ClientStatusService(many, progress, clock=Passing())  # type: ignore[arg-type]
    assert len(await service.clients()) == many.summed == MAX_CLIENTS
    assert max(after - before for before, after in pairwise(summed)) == 1


async def test_matching_gives_the_loop_away_too() -> None:
    progress = Progress(MAX_CLIENTS)
    service: Any = ClientStatusService(Many(progress), progress, clock=Passing())  # type: ignore[arg-type]
    nothing = csds_pb2.ClientStatusRequest(node_matchers=[{"node_id": {"contains": "nobody"}}])
    assert await turns_of(service, nothing.SerializeToString(), 1) >= MAX_CLIENTS


def test_a_node_id_is_folded_once_whatever_the_matchers() -> None:
    class Id(str):
        __slots__ = ()
        folds = 0

        def lower(self) -> str:
            Id.folds += 1
            return super().lower()

    matches = csds._matcher(
        [
            csds_pb2.ClientStatusRequest(
                node_matchers=[{"node_id": {"contains": f"X{n}", "ignore_case": True}}]
            ).node_matchers[0]
            for n in range(100)
        ]
    )
    assert not matches(Id("node"))
    assert matches(Id("node-x99"))
    assert Id.folds == 2


async def test_a_rejected_request_leaves_no_garbage(world: World) -> None:
    request = csds_pb2.ClientStatusRequest()
    request.node.user_agent_name = "x" * MAX_REQUEST_BYTES
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            call = world.stub.StreamClientStatus()
            await call.write(request)
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
            fetch = world.stub.FetchClientStatus(request)
            assert await fetch.code() is grpc.StatusCode.INVALID_ARGUMENT
        await asyncio.sleep(0.1)
        assert not [each for each in gc.get_objects() if isinstance(each, PeerError)]
    finally:
        gc.enable()


async def test_list_of_nodes_makes_no_object_per_node(world: World) -> None:
    """Python counts them, and collects garbage in full: with 2,000 clients the loop stood for 170 ms."""
    for number in range(30):
        await world.connect(f"node-{number:02d}")
    gc.disable()
    try:
        before = gc.get_count()[0]
        nodes = world.running.service.nodes()
        assert gc.get_count()[0] - before < 10
    finally:
        gc.enable()
    assert [node_id for node_id, _ in nodes] == [f"node-{number:02d}" for number in range(30)]
