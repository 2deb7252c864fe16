"""xds_server's stream to workers, against the real follower over a real socket."""

import asyncio
import contextlib
import struct
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from ext_proc.follower import Follower, Following
from fleet.codec import decode_placements, encode_in_flight, encode_loads, encode_membership
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.errors import PeerError
from fleet.service.reconnect import FAILURES_BEFORE_LOG
from fleet.service.serving import add_methods, channel_options
from fleet.store import FleetStore, FleetView, Missed, Placement, Traffic
from fleet.wire import control_pb2, control_pb2_grpc
from testing.signals import Load, Signal, load_of, view_with
from tests.xds_server.transports import TRANSPORTS, server_of
from xds_server.control.service import (
    MOST_MISSED,
    MOST_PLACED,
    PLACED_AT_ONCE,
    Broadcast,
    ControlService,
    NewestLog,
    WorkerStream,
)
from xds_server.doors import CONTROL_BYTES

A, B = Endpoint("10.0.0.1:80", "p"), Endpoint("10.0.0.2:80", "p")
MEMBERSHIP = Membership((Pool("p", (A, B)),))
VIEW = view_with(MEMBERSHIP, {A.address: 10}, {A.address: Load(queue_depth=Signal(3.0, 0.0, "scrape"))})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


class Server:
    """A control server that can be stopped and started again on its address."""

    def __init__(self, address: str, store: FleetStore, transport: str) -> None:
        self.address, self.store, self.transport = address, store, transport

    async def start(self) -> None:
        self.registry = CollectorRegistry()
        service = ControlService(self.store, self.registry)
        self.grpc = server_of(self.transport, self.address, service.register, receive_bytes=CONTROL_BYTES)
        await self.grpc.start()

    async def stop(self) -> None:
        await self.grpc.stop(0)


@dataclass
class Worker:
    """A follower with its store; `traffic` is what it reports."""

    address: str
    name: str = "w"
    store: FleetStore = field(default_factory=FleetStore)
    traffic: list[Traffic] = field(default_factory=list)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    booked: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        follower = Follower(
            self.address, self.name, self.store, lambda: self.traffic, self.registry, booked=self.booked
        )
        self.task = asyncio.create_task(follower.run())

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@pytest.fixture(params=TRANSPORTS)
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    server = Server(f"unix:{tmp_path}/control.sock", FleetStore(), request.param)
    await server.start()
    yield server
    await server.stop()


async def test_a_worker_learns_the_fleet_and_its_traffic_goes_up(server: Server) -> None:
    worker = Worker(server.address, traffic=[Traffic(A.address, 2, 5, 3, 0.5)])
    worker.start()
    server.store.publish(VIEW)
    await until(lambda: worker.store.view is not None)
    view = worker.store.view
    assert view is not None
    assert [e.address for e in view.membership.endpoints] == [A.address, B.address]
    assert view.weights == {A.address: 10}
    assert load_of(view.signals, A.address).queue_depth is not None
    await until(lambda: server.store.in_flight() == {A.address: 2})
    await worker.stop()
    await until(lambda: server.store.in_flight() == {})


async def test_silent_xds_server_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    worker = Worker(f"unix:{tmp_path}/nowhere.sock")
    worker.start()
    breaks = "warmroute_follower_breaks_total"
    await until(lambda: (worker.registry.get_sample_value(breaks) or 0) > FAILURES_BEFORE_LOG)
    await worker.stop()
    (message,) = [record.message for record in caplog.records if record.name == "fleet.service.reconnect"]
    assert f"no xds_server answers at control.address {worker.address} (UNAVAILABLE: " in message
    assert "No such file or directory" in message


def reads(worker: Worker, elsewhere: dict[str, int]) -> bool:
    return worker.store.view is not None and worker.store.view.in_flight_elsewhere == elsewhere


async def test_a_worker_hears_of_the_others_requests_but_not_its_own(server: Server) -> None:
    server.store.publish(VIEW)
    first = Worker(server.address, "one", traffic=[Traffic(A.address, 2, 2, 0)])
    second = Worker(server.address, "two", traffic=[Traffic(A.address, 5, 5, 0)])
    first.start()
    second.start()
    await until(lambda: server.store.in_flight() == {A.address: 7})
    server.store.publish(FleetView(MEMBERSHIP))
    await until(lambda: reads(first, {A.address: 5}))
    await until(lambda: reads(second, {A.address: 2}))
    await first.stop()
    await second.stop()


async def test_a_worker_hears_of_the_others_requests_between_two_views(server: Server) -> None:
    """Loads change with the scrapes; requests in flight with each request."""
    server.store.publish(VIEW)
    first = Worker(server.address, "one")
    second = Worker(server.address, "two")
    first.start()
    second.start()
    await until(lambda: first.store.view is not None and second.store.view is not None)
    for count in (3, 1, 0):
        first.traffic = [Traffic(A.address, count, 5, 5 - count)]
        elsewhere = {A.address: count} if count else {}
        await until(partial(reads, second, elsewhere))
        assert first.store.view is not None
        assert first.store.view.in_flight_elsewhere == {}
    assert server.store.view is VIEW, "no tick has published it"
    await first.stop()
    await second.stop()


async def test_pick_is_reported_before_the_next_look(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ext_proc.follower.pause_seconds", lambda _endpoints: 3600.0)
    server.store.publish(VIEW)
    worker = Worker(server.address)
    worker.start()
    await until(lambda: worker.store.view is not None)
    worker.traffic = [Traffic(A.address, 1, 1, 0, prefill_seconds_total=0.5)]
    worker.booked.set()
    await until(lambda: server.store.in_flight("other") == {A.address: 1})
    await worker.stop()


async def test_all_workers_receive_missed_requests_between_views(server: Server) -> None:
    server.store.publish(VIEW)
    server.store.publish_missed(Missed(1, A.address, ""))
    workers = [Worker(server.address, name) for name in ("one", "two")]
    received_by: list[list[Missed]] = [[], []]
    for worker, received in zip(workers, received_by, strict=True):
        worker.store.on_missed(received.append)
        worker.start()
    await until(lambda: all(worker.store.view is not None for worker in workers))
    missed = [Missed(2**64 - 1, A.address, ""), Missed(3, B.address, A.address, 2**64 - 1, 4)]
    for each in missed:
        server.store.publish_missed(each)
    await until(lambda: [len(part) for part in received_by] == [2, 2])
    assert received_by == [missed, missed], "and not of what was before them"
    assert server.store.view is VIEW, "no tick has published it"
    for worker in workers:
        await worker.stop()


def test_newest_of_too_many_missed_requests_are_sent() -> None:
    log: NewestLog[Missed] = NewestLog(MOST_MISSED, MOST_MISSED)
    log.add(Missed(0, A.address, ""))
    at = log.total
    assert log.since(at) == []
    for prompt in range(1, 2 * MOST_MISSED):
        log.add(Missed(prompt, A.address, ""))
    assert [missed.prompt for missed in log.since(log.total - 2)] == [
        2 * MOST_MISSED - 2,
        2 * MOST_MISSED - 1,
    ]
    assert log.since(at)[0].prompt == MOST_MISSED
    assert len(log.since(at)) == MOST_MISSED


async def test_worker_keeps_its_view_while_the_server_is_away(server: Server) -> None:
    worker = Worker(server.address)
    worker.start()
    server.store.publish(VIEW)
    await until(lambda: worker.store.view is not None)
    await server.stop()
    await until(lambda: worker.registry.get_sample_value("warmroute_follower_connected") == 0)
    assert worker.store.view is not None
    server.store = FleetStore()
    await server.start()
    bigger = Membership((Pool("p", (A, B, Endpoint("10.0.0.3:80", "p"))),))
    server.store.publish(FleetView(bigger))
    await until(lambda: worker.store.view is not None and len(worker.store.view.membership.endpoints) == 3)
    await worker.stop()


async def test_an_unchanged_membership_stays_the_same_object() -> None:
    following = Following()
    now = 0.0
    assert following.on_update(encode_membership(MEMBERSHIP), None, now) is None
    first = following.on_update(encode_loads(VIEW, now), None, now)
    again = Following()
    again.on_update(encode_membership(MEMBERSHIP), first, now)
    second = again.on_update(encode_loads(VIEW, now), first, now)
    assert first is not None
    assert second is not None
    assert first.membership is second.membership


def kinds(messages: list[bytes]) -> list[str | None]:
    return [control_pb2.FleetUpdate.FromString(message).WhichOneof("kind") for message in messages]


def hello(broadcast: Broadcast, store: FleetStore, name: str = "w") -> WorkerStream:
    stream = WorkerStream(broadcast, NewestLog(1, 1), NewestLog(1, 1))
    stream.receive(control_pb2.FollowRequest(hello=control_pb2.Hello(worker=name)).SerializeToString(), store)
    return stream


async def test_membership_is_sent_once_and_before_its_loads() -> None:
    store = FleetStore()
    stream = hello(Broadcast(), store)
    assert kinds(stream.updates(VIEW, store, 0.0)) == ["membership", "loads"]
    later = view_with(MEMBERSHIP, VIEW.weights, {A.address: Load(queue_depth=Signal(3.0, 1.0, "scrape"))})
    assert kinds(stream.updates(later, store, 1.0)) == ["loads"]
    changed = FleetView(Membership((Pool("p", (A,)),)))
    assert kinds(stream.updates(changed, store, 2.0)) == ["membership", "loads"]


async def test_equal_view_is_not_sent() -> None:
    store, broadcast = FleetStore(), Broadcast()
    stream = hello(broadcast, store)
    stream.updates(VIEW, store, 0.0)
    assert stream.updates(replace(VIEW), store, 1.0) == []
    assert kinds(stream.updates(replace(VIEW, sampling_ratio_floor=0.5), store, 2.0)) == ["loads"]
    assert kinds(stream.updates(replace(VIEW, weights={A.address: 11}), store, 3.0)) == ["loads"]
    late = hello(broadcast, store, "late")
    assert kinds(late.updates(replace(VIEW, weights={A.address: 11}), store, 4.0)) == ["membership", "loads"]


async def test_other_workers_requests_are_sent_only_on_change() -> None:
    store = FleetStore()
    stream = hello(Broadcast(), store)
    stream.updates(VIEW, store, 0.0)
    store.report("other", [Traffic(A.address, 2, 2, 0)])
    store.report("w", [Traffic(A.address, 9, 9, 0)])
    updates = stream.updates(replace(VIEW), store, 1.0)
    assert kinds(updates) == ["in_flight"]
    assert list(control_pb2.FleetUpdate.FromString(updates[0]).in_flight.elsewhere) == [2, 0]
    assert stream.updates(replace(VIEW), store, 2.0) == []
    store.forget_worker("other")
    assert kinds(stream.updates(replace(VIEW), store, 3.0)) == ["in_flight"]


async def test_all_workers_are_sent_the_same_bytes() -> None:
    store, broadcast = FleetStore(), Broadcast()
    one, two = hello(broadcast, store, "one"), hello(broadcast, store, "two")
    first, second = one.updates(VIEW, store, 0.0), two.updates(VIEW, store, 0.1)
    assert [id(message) for message in first] == [id(message) for message in second]


async def test_late_worker_receives_the_present_age_of_signals() -> None:
    store, broadcast = FleetStore(), Broadcast()
    hello(broadcast, store, "one").updates(VIEW, store, 0.0)
    updates = hello(broadcast, store, "two").updates(VIEW, store, 5.0)
    (column,) = control_pb2.FleetUpdate.FromString(updates[1]).loads.signals
    assert struct.unpack("<2d", column.ages_seconds)[0] == 5.0


def test_counts_and_loads_make_one_view_in_either_order() -> None:
    counts = encode_in_flight({A.address: 4}, {A.address: 2.5}, MEMBERSHIP)
    for updates in ([counts, encode_loads(VIEW, 0.0)], [encode_loads(VIEW, 0.0), counts]):
        following = Following()
        following.on_update(encode_membership(MEMBERSHIP), None, 0.0)
        views = [following.on_update(update, None, 0.0) for update in updates]
        assert views[-1] is not None
        assert views[-1].in_flight_elsewhere == {A.address: 4}
        assert views[-1].prefill_elsewhere[A.address] == 2.5
        assert views[-1].weights == {A.address: 10}


def test_counts_before_a_membership_are_the_peers_fault() -> None:
    with pytest.raises(PeerError):
        Following().on_update(encode_in_flight({}, {}, MEMBERSHIP), None, 0.0)


def test_loads_before_a_membership_are_the_peers_fault() -> None:
    with pytest.raises(PeerError):
        Following().on_update(encode_loads(VIEW, 0.0), None, 0.0)


@pytest.mark.parametrize(
    "requests",
    [
        [control_pb2.FollowRequest()],
        [control_pb2.FollowRequest(report=control_pb2.TrafficReport())],
        [control_pb2.FollowRequest(hello=control_pb2.Hello(worker="w"))] * 2,
    ],
)
async def test_worker_that_breaks_the_protocol_gets_an_error(
    server: Server, requests: list[control_pb2.FollowRequest]
) -> None:
    server.store.publish(VIEW)
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = control_pb2_grpc.FleetControlStub(channel).Follow(iter(requests))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async with asyncio.timeout(60):
                async for _ in call:
                    pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.registry.get_sample_value("warmroute_worker_protocol_errors_total") == 1
    assert server.registry.get_sample_value("warmroute_workers") == 0


async def test_a_fault_of_ours_while_reading_leaves_no_worker_behind(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests would count as in flight for ever, and keep the others off those endpoints."""
    server.store.publish(VIEW)
    worker = Worker(server.address, traffic=[Traffic(A.address, 2, 2, 0)])
    worker.start()
    await until(lambda: server.store.in_flight() == {A.address: 2})
    fault = RuntimeError("ours")

    def fails(*_: object) -> None:
        raise fault

    monkeypatch.setattr(server.store, "report", fails)
    await until(lambda: server.store.in_flight() == {})
    await worker.stop()
    await until(lambda: server.registry.get_sample_value("warmroute_workers") == 0)


@pytest.mark.parametrize("after_hello", [False, True])
async def test_bytes_that_are_no_message_are_the_workers_error(server: Server, after_hello: bool) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        call = channel.stream_stream("/warmroute.v1.FleetControl/Follow")()
        if after_hello:
            hello = control_pb2.FollowRequest(hello=control_pb2.Hello(worker="w"))
            await call.write(hello.SerializeToString())
        await call.write(b"\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert server.registry.get_sample_value("warmroute_worker_protocol_errors_total") == 1


async def test_a_worker_pings_no_more_often_than_the_server_permits(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is refused at the start, reconnects once, and then follows."""
    monkeypatch.setattr(
        "xds_server.control.service.PERMITTED_PING", (("warmroute-permitted-ping-ms", "60000"),)
    )
    opened: list[float] = []
    monkeypatch.setattr(
        "fleet.service.credentials.channel_options",
        lambda seconds: opened.append(seconds) or channel_options(seconds),
    )
    server.store.publish(VIEW)
    worker = Worker(server.address)
    worker.start()
    try:
        await until(lambda: worker.store.view is not None)
        assert opened == [10.0, 60.0]
        assert [record.message.count("permits a ping in 60 s") for record in caplog.records].count(1) == 1
    finally:
        await worker.stop()


async def test_placements_reach_every_worker_in_one_order(server: Server) -> None:
    """A worker that comes later gets those before it; two workers that disagree end with the same."""
    server.store.publish(VIEW)
    placed: dict[str, list[Placement]] = {}
    tasks: list[asyncio.Task[None]] = []

    def follow(name: str) -> Follower:
        store = FleetStore()
        store.on_placed(placed.setdefault(name, []).append)
        follower = Follower(server.address, name, store, list, CollectorRegistry())
        tasks.append(asyncio.create_task(follower.run()))
        return follower

    many = [Placement(number, A.address) for number in range(1, 3 * PLACED_AT_ONCE)]
    try:
        one, two = follow("one"), follow("two")
        one.place(Placement(2**64 - 1, A.address))
        two.place(Placement(2**64 - 1, B.address))
        await until(lambda: [len(of) for of in placed.values()] == [2, 2])
        assert placed["one"] == placed["two"]
        for placement in many:
            one.place(placement)
        await until(lambda: len(placed["two"]) == len(many) + 2)
        follow("late")
        await until(lambda: len(placed["late"]) == len(many) + 2)
        assert placed["late"] == placed["two"]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_dropped_placements_are_not_waited_for() -> None:
    log: NewestLog[Placement] = NewestLog(MOST_PLACED, PLACED_AT_ONCE)
    stream = WorkerStream(Broadcast(), NewestLog(1, 1), log)
    assert [*stream.placed()] == [control_pb2.FleetUpdate(placed={}).SerializeToString()]
    for number in range(MOST_PLACED + 10):
        log.add(Placement(number + 1, A.address))
    names = [
        placement.name
        for update in stream.placed()
        for placement in decode_placements(control_pb2.FleetUpdate.FromString(update).placed)
    ]
    assert names == list(range(11, MOST_PLACED + 11))
    assert [*stream.placed()] == []


async def test_placements_wait_for_a_server_that_takes_them(tmp_path: Path) -> None:
    """An older one, which sends none, would end the stream of a worker that does."""
    received: Counter[str] = Counter()

    async def follow(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        yield encode_membership(MEMBERSHIP).SerializeToString()
        async for request in requests:
            received[control_pb2.FollowRequest.FromString(request).WhichOneof("kind") or ""] += 1

    def register(server: grpc.aio.Server) -> None:
        handler = grpc.stream_stream_rpc_method_handler(follow)
        add_methods(server, "warmroute.v1.FleetControl", {"Follow": handler})

    address = f"unix:{tmp_path}/old.sock"
    old = server_of("grpcio", address, register, receive_bytes=CONTROL_BYTES)
    await old.start()
    follower = Follower(
        address, "w", FleetStore(), lambda: [Traffic(A.address, 1, 1, 0)], CollectorRegistry()
    )
    follower.place(Placement(1, A.address))
    task = asyncio.create_task(follower.run())
    try:
        await until(lambda: received["report"] > 1)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await old.stop(0)
    assert "placed" not in received
