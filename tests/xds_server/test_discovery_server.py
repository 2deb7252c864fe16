"""The service over real gRPC: one test body for {SotW, delta} x {ADS, separate services}."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from fleet.envoy_api.google.protobuf import any_pb2
from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE
from xds_server.discovery.arrivals import Arrivals
from xds_server.discovery.ordering import Delays
from xds_server.discovery.status import DiscoveryObserver

if TYPE_CHECKING:
    from types import SimpleNamespace

    from xds_server.snapshot.snapshot import SnapshotStore

LANES = [(variant, service) for variant in ("sotw", "delta") for service in ("ads", "separate")]
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"


@pytest.fixture(params=LANES, ids=["-".join(lane) for lane in LANES])
def lane(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param  # type: ignore[no-any-return]


def everything(xds: SimpleNamespace, weight: int = 10, seconds: int = 1) -> Any:
    return xds.snapshot(
        xds.cluster("a", seconds=seconds),
        xds.assignment("a", weight, 20),
        xds.assignment("b", 30),
        xds.listener("front"),
        xds.route("front", "a"),
    )


class Witness(DiscoveryObserver):
    """An observer that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    def pushed(self, client: Any, type_url: str, version: str) -> None:
        self.calls.append(("pushed", client.node_id, type_url, version))

    def acked(self, client: Any, type_url: str, version: str) -> None:
        self.calls.append(("acked", client.node_id, type_url, version))

    def nacked(self, client: Any, type_url: str, version: str, message: str) -> None:
        self.calls.append(("nacked", client.node_id, type_url, version, message))

    def closed(self, client: Any, type_urls: Any) -> None:
        self.calls.append(("left", client.node_id, *sorted(type_urls)))


async def until(condition: Any) -> None:
    """Wait for what the server does after it has read the client's last message."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_client_follows_the_fleet(xds: SimpleNamespace, serve: Any, lane: tuple[str, str]) -> None:
    """From before the first snapshot to a change of weights, a change of a cluster, and resubscription."""
    running = await serve()
    client = running.connect(*lane)
    await client.ask(TYPE_CLUSTER)
    await client.ask(TYPE_ENDPOINT, ("a", "unknown"))
    await until(lambda: running.value("streams") == (1 if lane[1] == "ads" else 2))
    running.store.set(everything(xds))
    assert set((await client.receive(TYPE_CLUSTER)).resources) == {"a"}
    assert set((await client.receive(TYPE_ENDPOINT)).resources) == {"a"}
    await client.ask(TYPE_LISTENER)
    assert set((await client.receive(TYPE_LISTENER)).resources) == {"front"}
    await client.ask(TYPE_ROUTE, ("front",))
    assert set((await client.receive(TYPE_ROUTE)).resources) == {"front"}

    running.store.set(everything(xds, weight=11))
    received = await client.receive(TYPE_ENDPOINT)
    assert received.resources["a"] == xds.assignment("a", 11, 20).body.value

    running.store.set(everything(xds, weight=11, seconds=2))
    await client.receive(TYPE_CLUSTER)
    if lane[1] == "ads":
        await client.receive(TYPE_ENDPOINT)

    await client.ask(TYPE_ENDPOINT, ())
    await client.ask(TYPE_ENDPOINT, ("b",))
    assert set((await client.receive(TYPE_ENDPOINT)).resources) == {"b"}
    await client.ask(TYPE_ENDPOINT, ("a", "b"))
    assert set((await client.receive(TYPE_ENDPOINT)).resources) == {"a", "b"}
    client.cancel()
    await running.idle()
    assert running.value("faults_total") == 0 == running.value("peer_errors_total")


async def test_acks_and_nacks_are_counted_observed_and_shown(
    xds: SimpleNamespace, serve: Any, lane: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    witness = Witness()
    running = await serve(observers=[witness])
    snapshot = everything(xds)
    version = snapshot.version(TYPE_ENDPOINT)
    running.store.set(snapshot)
    clients = [running.connect(*lane, node=f"node-{number}") for number in range(3)]
    for client in clients:
        await client.ask(TYPE_ENDPOINT, ("a",))
        await client.receive(TYPE_ENDPOINT, error="weight out of range")
    await until(lambda: running.value("nacks_total", type="ClusterLoadAssignment") == 3)
    assert running.value("pushes_total", type="ClusterLoadAssignment") == 3
    refusals = [entry for entry in caplog.records if entry.levelno == logging.ERROR]
    assert len(refusals) == 1, "a content's refusal is logged once, not once a client"
    assert ("nacked", "node-1", TYPE_ENDPOINT, version, "weight out of range") in witness.calls
    shown = running.service.clients()
    assert [client.node_id for client in shown] == ["node-0", "node-1", "node-2"]
    (status,) = shown[0].types
    assert (status.version_sent, status.version_acked, status.version_nacked) == (version, "", version)

    running.store.set(everything(xds, weight=12))
    await clients[0].receive(TYPE_ENDPOINT)
    await until(lambda: running.value("acks_total", type="ClusterLoadAssignment") == 1)
    (status,) = running.service.clients()[0].types
    assert (status.version_acked, status.error) == (running.store.snapshot.version(TYPE_ENDPOINT), "")

    for client in clients:
        client.cancel()
    await running.idle()
    assert {("left", f"node-{number}", TYPE_ENDPOINT) for number in range(3)} <= set(witness.calls)


async def test_a_client_is_logged_as_it_comes_and_goes(
    xds: SimpleNamespace, serve: Any, lane: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    arrivals = Arrivals("unix:/x")
    running = await serve(observers=[arrivals])
    running.store.set(everything(xds))
    client = running.connect(*lane, node="node-7")
    for kind, names in ((TYPE_CLUSTER, ()), (TYPE_ENDPOINT, ("a",))):
        await client.ask(kind, names)
        await client.receive(kind)
    assert arrivals.connected == 1
    client.cancel()
    await until(lambda: arrivals.connected == 0)
    messages = [record.message for record in caplog.records if "node-7" in record.message]
    assert [line.partition(": ")[2] for line in messages] == ["1 connected", "0 connected"]
    assert "has connected from the Unix socket" in messages[0]


async def test_restarted_server_answers_a_client_with_more_resources(
    xds: SimpleNamespace, serve: Any
) -> None:
    """Old version, old nonce, and one name that the new server does not have."""
    running = await serve()
    running.store.set(everything(xds))
    client = running.connect("sotw")
    request = client.peer.ask(TYPE_ENDPOINT, ("a", "of another server"))
    request.version_info = running.store.snapshot.version(TYPE_ENDPOINT)
    request.response_nonce = "of an earlier stream"
    await client.call(TYPE_ENDPOINT).write(request)
    assert set((await client.receive(TYPE_ENDPOINT)).resources) == {"a"}


async def test_two_streams_of_a_server_never_share_a_nonce(xds: SimpleNamespace, serve: Any) -> None:
    running = await serve()
    running.store.set(everything(xds))
    nonces = set()
    for _ in range(2):
        client = running.connect("sotw")
        await client.ask(TYPE_CLUSTER)
        nonces.add((await client.receive(TYPE_CLUSTER)).nonce)
    assert len(nonces) == 2


async def test_an_old_stream_of_a_node_takes_nothing_from_its_new_one(
    xds: SimpleNamespace, serve: Any
) -> None:
    running = await serve()
    running.store.set(everything(xds))
    old, new = running.connect("sotw"), running.connect("sotw")
    for client in (old, new):
        await client.ask(TYPE_CLUSTER)
        await client.receive(TYPE_CLUSTER)
    (status,) = running.service.clients()
    assert status.streams == 2
    old.cancel()
    await until(lambda: running.value("streams") == 1)
    (status,) = running.service.clients()
    assert (status.streams, status.types[0].version_sent) == (1, running.store.snapshot.version(TYPE_CLUSTER))


async def test_a_clients_errors_end_its_stream_and_no_other(
    xds: SimpleNamespace, serve: Any, lane: tuple[str, str]
) -> None:
    running = await serve()
    running.store.set(everything(xds))
    good = running.connect(*lane)
    await good.ask(TYPE_CLUSTER)
    await good.receive(TYPE_CLUSTER)
    bad = running.connect(*lane)
    request = bad.peer.ask(TYPE_CLUSTER)
    request.type_url = TYPE_CLUSTER[:-1] if lane[1] == "separate" else ""
    call = bad.call(TYPE_CLUSTER)
    await call.write(request)
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not served here" in await call.details()
    nameless = running.connect(*lane, node="")
    await nameless.ask(TYPE_CLUSTER)
    assert await nameless.call(TYPE_CLUSTER).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert running.value("peer_errors_total") == 2
    running.store.set(everything(xds, seconds=2))
    await good.receive(TYPE_CLUSTER)


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_a_type_that_nobody_serves_costs_an_ads_client_nothing(
    xds: SimpleNamespace, serve: Any, variant: str
) -> None:
    """An Envoy that also asks for runtime layers here keeps its clusters; the question stays unanswered."""
    running = await serve()
    running.store.set(everything(xds))
    client = running.connect(variant, "ads")
    request = client.peer.ask(TYPE_CLUSTER)
    request.type_url = "type.googleapis.com/envoy.service.runtime.v3.Runtime"
    await client.call(TYPE_CLUSTER).write(request)
    await client.ask(TYPE_CLUSTER)
    await client.receive(TYPE_CLUSTER)
    assert running.value("peer_errors_total") == 0
    assert running.value("unserved_requests_total") == 1


async def test_bytes_that_are_no_request_are_the_clients_error(serve: Any) -> None:
    running = await serve()
    call = running.channel().stream_stream(f"{ADS}DeltaAggregatedResources")()
    await call.write(b"\xff\xff\xff")
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_fault_of_ours_ends_one_stream_and_is_counted(
    xds: SimpleNamespace, serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    running = await serve()
    good = running.connect("delta")
    await good.ask(TYPE_ENDPOINT, ("a",))
    running.store.set(everything(xds))
    await good.receive(TYPE_ENDPOINT)
    broken = everything(xds, weight=99)
    no_cluster = any_pb2.Any(type_url=TYPE_CLUSTER, value=b"\xff\xff")
    object.__setattr__(broken.of_type(TYPE_CLUSTER)["a"], "body", no_cluster)
    running.store.set(broken)
    await good.receive(TYPE_ENDPOINT)
    bad = running.connect("delta")
    await bad.ask(TYPE_CLUSTER)
    assert await bad.call(TYPE_CLUSTER).code() is grpc.StatusCode.INTERNAL
    assert running.value("faults_total") == 1
    assert any(entry.exc_info for entry in caplog.records)
    running.store.set(everything(xds, weight=98))
    await good.receive(TYPE_ENDPOINT)


async def test_a_client_that_says_no_more_still_gets_its_answer(
    xds: SimpleNamespace, serve: Any, lane: tuple[str, str]
) -> None:
    running = await serve()
    running.store.set(everything(xds))
    client = running.connect(*lane)
    await client.ask(TYPE_CLUSTER)
    call = client.call(TYPE_CLUSTER)
    await call.done_writing()
    assert set(client.peer.take(await call.read()).resources) == {"a"}
    assert await call.code() is grpc.StatusCode.OK
    await running.idle()


async def test_streams_are_bounded(xds: SimpleNamespace, serve: Any) -> None:
    running = await serve(max_streams=1)
    running.store.set(everything(xds))
    first = running.connect("sotw")
    await first.ask(TYPE_CLUSTER)
    await first.receive(TYPE_CLUSTER)
    second = running.connect("sotw")
    await second.ask(TYPE_CLUSTER)
    assert await second.call(TYPE_CLUSTER).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert running.value("streams_rejected_total") == 1
    first.cancel()
    await running.idle()
    third = running.connect("sotw")
    await third.ask(TYPE_CLUSTER)
    await third.receive(TYPE_CLUSTER)


async def test_connect_subscribe_cancel_leaves_nothing(xds: SimpleNamespace, serve: Any) -> None:
    """Several hundred cycles, cancelled at different moments."""
    running = await serve()
    running.store.set(everything(xds))
    channel = running.channel()
    stub = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel)
    before = len(asyncio.all_tasks())
    for cycle in range(300):
        peer = xds.peer("sotw" if cycle % 2 else "delta")
        method = stub.StreamAggregatedResources if cycle % 2 else stub.DeltaAggregatedResources
        call = method()
        if cycle % 3:
            await call.write(peer.ask(TYPE_CLUSTER))
        if cycle % 3 == 2:
            peer.take(await call.read())
        call.cancel()
    await running.idle()
    assert running.service.clients() == []
    # grpc.aio replaces its own accepting task with each call, so the number is what must come back.
    await until(lambda: len(asyncio.all_tasks()) <= before)
    assert running.value("faults_total") == 0


async def test_slow_reader_delays_nobody_and_gets_the_newest(xds: SimpleNamespace, serve: Any) -> None:
    """Each state is a megabyte, far beyond what the transport takes in for a client that does not read."""

    def heavy(weight: int) -> Any:
        return xds.snapshot(xds.assignment("a", *([weight] * 30_000)))

    running = await serve(max_streams=50)
    store: SnapshotStore = running.store
    store.set(heavy(1))
    narrow = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_536))
    slow = running.connect("delta", "ads", "slow", *narrow)
    await slow.ask(TYPE_ENDPOINT, ("a",))
    quick = [running.connect("delta", node=f"quick-{number}") for number in range(3)]
    for client in quick:
        await client.ask(TYPE_ENDPOINT, ("a",))
        await client.receive(TYPE_ENDPOINT)
    rounds = 12
    for weight in range(2, rounds + 2):
        store.set(heavy(weight))
        for client in quick:
            received = await client.receive(TYPE_ENDPOINT)
            assert received.resources["a"] == store.snapshot.of_type(TYPE_ENDPOINT)["a"].body.value  # type: ignore[union-attr]
    newest = store.snapshot.of_type(TYPE_ENDPOINT)["a"].body.value  # type: ignore[union-attr]
    responses = 0
    while slow.peer.received[TYPE_ENDPOINT].resources.get("a") != newest:
        await slow.receive(TYPE_ENDPOINT)
        responses += 1
    assert responses <= 3, "states that a slow client missed were queued for it"


async def test_draining_ends_streams_in_turn_and_rejects_new_ones(xds: SimpleNamespace, serve: Any) -> None:
    running = await serve()
    running.store.set(everything(xds))
    clients = [running.connect("sotw", node=f"node-{number}") for number in range(4)]
    for client in clients:
        await client.ask(TYPE_CLUSTER)
        await client.receive(TYPE_CLUSTER)
    # Over a minute for four streams, the first ends at once and the others have long to go.
    slowly = asyncio.create_task(running.service.drain(60))
    await until(lambda: running.value("streams") == 3)
    slowly.cancel()
    await running.service.drain(0.04)
    for client in clients:
        assert await client.call(TYPE_CLUSTER).code() is grpc.StatusCode.UNAVAILABLE
    late = running.connect("sotw")
    await late.ask(TYPE_CLUSTER)
    assert await late.call(TYPE_CLUSTER).code() is grpc.StatusCode.UNAVAILABLE
    await running.idle()


async def test_draining_ends_a_stream_whose_client_does_not_read(xds: SimpleNamespace, serve: Any) -> None:
    running = await serve()
    running.store.set(xds.snapshot(xds.assignment("a", *([1] * 100_000))))
    stuck = running.connect("delta")
    await stuck.ask(TYPE_ENDPOINT, ("a",))
    await until(lambda: running.value("streams") == 1)
    await running.service.drain(0.01)
    await running.idle()


async def test_routes_come_even_if_a_client_never_answers_its_clusters(
    xds: SimpleNamespace, serve: Any
) -> None:
    running = await serve(delays=Delays(hold_seconds=0.05))
    running.store.set(everything(xds))
    client = running.connect("sotw")
    await client.ask(TYPE_CLUSTER)
    await client.ask(TYPE_LISTENER)
    call = client.call(TYPE_CLUSTER)
    assert (await call.read()).type_url == TYPE_CLUSTER
    assert (await asyncio.wait_for(call.read(), 60)).type_url == TYPE_LISTENER


@pytest.mark.parametrize("variant", ["sotw", "delta"])
async def test_a_cluster_outlives_the_routes_to_it_for_a_while_only(
    xds: SimpleNamespace, serve: Any, variant: str
) -> None:
    running = await serve(delays=Delays(linger_seconds=0.2))
    two = [xds.cluster("a"), xds.cluster("b"), xds.assignment("a", 1), xds.assignment("b", 1)]
    running.store.set(xds.snapshot(*two))
    client = running.connect(variant)
    await client.ask(TYPE_CLUSTER)
    await client.receive(TYPE_CLUSTER)
    assert set(client.peer.received[TYPE_CLUSTER].resources) == {"a", "b"}
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    running.store.set(xds.snapshot(two[1], two[3]))
    await client.receive(TYPE_CLUSTER)
    assert set(client.peer.received[TYPE_CLUSTER].resources) == {"b"}
    assert loop.time() - began_at >= 0.19
