"""What one peer of the control stream sends harms no other one, and takes bounded work and memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from itertools import islice
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from prometheus_client import CollectorRegistry

from bench.abuse import control
from bench.abuse.sending import field
from ext_proc.follower import Follower
from fleet import codec
from fleet.codec import MAX_IN_FLIGHT, decode_traffic, encode_in_flight, traffic_in_parts
from fleet.endpoint import Endpoint, Membership, Pool
from fleet.errors import PeerError
from fleet.gpu.codec import MAX_GPUS, MAX_PARTS, encode_report
from fleet.gpu.faults import FaultEvent
from fleet.gpu.reading import GpuReading, NodeReading, NvLink, PeerLink
from fleet.lane import server as lane_server
from fleet.service import opening
from fleet.service.turns import Turns
from fleet.settings import FaultSettings, SignalSettings
from fleet.store import FleetStore, FleetView
from fleet.wire import control_pb2, gpu_pb2
from tests.xds_server.transports import TRANSPORTS, server_of
from xds_server.control import service as control_module
from xds_server.control.service import WHOLE_BYTES, ControlService, WorkerStream
from xds_server.doors import CONTROL_BYTES
from xds_server.signals.gpu import reports as gpu_module
from xds_server.signals.gpu.report_service import MAX_REPORT_BYTES, GpuReportService
from xds_server.signals.gpu.reports import MAX_KEPT_BYTES, MAX_NODES, GpuBoard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

A, B = Endpoint("10.0.0.1:80", "p"), Endpoint("10.0.0.2:80", "p")
MEMBERSHIP = Membership((Pool("p", (A, B)),))


class Site:
    """A control server and what it counts."""

    def __init__(self, path: Path, transport: str) -> None:
        self.address = f"unix:{path}/control.sock"
        self.registry = CollectorRegistry()
        self.store = FleetStore()
        self.store.publish(FleetView(MEMBERSHIP))
        self.board = GpuBoard(SignalSettings(), FaultSettings(), self.registry)
        self.control = ControlService(self.store, self.registry)
        registers = self.control.register, GpuReportService(self.board).register
        self.grpc = server_of(transport, self.address, *registers, receive_bytes=CONTROL_BYTES)

    def value(self, name: str) -> float:
        return self.registry.get_sample_value(f"warmroute_{name}") or 0.0


@pytest.fixture(params=TRANSPORTS)
async def site(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    site = Site(tmp_path, request.param)
    await site.grpc.start()
    yield site
    await site.grpc.stop(0)


@contextlib.asynccontextmanager
async def attacked(site: Site, kind: str, **more: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(control.attack(site.address, kind, seconds=60.0, **more))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_counts_beyond_belief_cut_nobody_off(site: Site) -> None:
    registry, store = CollectorRegistry(), FleetStore()
    honest = asyncio.create_task(Follower(site.address, "honest", store, list, registry).run())
    async with attacked(site, "counts", addresses=(A.address,)):
        await until(lambda: store.view is not None and bool(store.view.in_flight_elsewhere))
        await until(lambda: site.store.in_flight().get(A.address, 0) >= 2 * MAX_IN_FLIGHT)
        for weight in (2, 3, 4):  # rounds of updates
            site.store.publish(FleetView(MEMBERSHIP, {A.address: weight, B.address: 1}))
            await until(lambda: store.view is not None and store.view.weights.get(A.address) == weight)  # noqa: B023
        assert registry.get_sample_value("warmroute_follower_connected") == 1
        assert registry.get_sample_value("warmroute_follower_breaks_total") == 0
    assert site.value("worker_faults_total") == 0
    honest.cancel()
    await asyncio.wait([honest])


def test_sums_beyond_the_wire_type_are_sent_as_its_largest() -> None:
    update = encode_in_flight({A.address: 2**40, B.address: 3}, {}, MEMBERSHIP)
    assert list(update.in_flight.elsewhere) == [2**32 - 1, 3]


def test_of_a_report_only_the_memberships_endpoints_count() -> None:
    report = control_pb2.TrafficReport()
    for address in ("10.9.9.9:1", A.address):
        report.endpoints.add(address=address, in_flight=2**32 - 1)
    (traffic,) = decode_traffic(report, MEMBERSHIP)
    assert (traffic.address, traffic.in_flight) == (A.address, MAX_IN_FLIGHT)


def test_work_of_a_report_follows_the_membership() -> None:
    looked = 0

    class Entry:
        @property
        def address(self) -> str:
            nonlocal looked
            looked += 1
            return "10.9.9.9:1"

    class Report:
        endpoints = (Entry() for _ in range(100_000))

    assert decode_traffic(Report(), MEMBERSHIP) == []  # type: ignore[arg-type]
    assert looked < 200


def many(count: int) -> tuple[Membership, bytes]:
    """A membership, and a worker's report of each of its endpoints."""
    addresses = [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}:80" for n in range(count)]
    return Membership((Pool("p", tuple(Endpoint(a, "p") for a in addresses)),)), control.report(addresses, 7)


def test_a_large_report_is_read_in_small_parts() -> None:
    membership, message = many(10_000)
    request = control_pb2.FollowRequest.FromString(message)
    parts = list(traffic_in_parts(message, membership))
    assert max(map(len, parts)) <= 256
    assert [entry for part in parts for entry in part] == decode_traffic(request.report, membership)
    assert sum(map(len, parts)) == 10_000


@pytest.mark.parametrize(
    "content", [b"\x0a\x00" * 500_000, b"\x48\x01" * 500_000, b"\x0a\x00" * 500_000 + b"\xff"], ids=len
)
def test_of_a_report_of_nothing_few_bytes_are_read(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    decode = codec.decode_traffic
    monkeypatch.setattr(
        codec, "decode_traffic", lambda *args: read.append(args[0].ByteSize()) or decode(*args)
    )
    assert not any(traffic_in_parts(field(2, content), MEMBERSHIP))
    assert sum(read) < 1000


async def test_reports_of_large_fleets_yield_to_the_loop(site: Site) -> None:
    membership, message = many(10_000)
    assert len(message) > WHOLE_BYTES
    site.store.publish(FleetView(membership))
    site.control._turns = Turns(itertools.count(0.0).__next__)
    stream = WorkerStream(site.control._broadcast, site.control._missed, site.control._placements)
    await site.control._take(stream, control.hello("w"))
    turns, taking = 0, [asyncio.create_task(site.control._take(stream, message)) for _ in range(2)]
    while not all(task.done() for task in taking):
        turns += 1
        await asyncio.sleep(0)
    assert sum(site.store.in_flight().values()) == 70_000
    assert turns > 2 * 10_000 / 256
    assert site.control._bytes == 0


async def test_reports_that_are_being_read_are_bounded_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership, message = many(1000)
    site.store.publish(FleetView(membership))
    monkeypatch.setattr(control_module, "MAX_BYTES", 2 * len(message))
    stream = WorkerStream(site.control._broadcast, site.control._missed, site.control._placements)
    await site.control._take(stream, control.hello("w"))
    reports = [site.control._take(stream, message) for _ in range(5)]
    outcomes = await asyncio.gather(*reports, return_exceptions=True)
    assert [isinstance(one, PeerError) for one in outcomes] == [False, False, True, True, True]


async def test_a_large_message_is_none_but_a_report(site: Site) -> None:
    stream = WorkerStream(site.control._broadcast, site.control._missed, site.control._placements)
    with pytest.raises(PeerError, match="unexpected message of"):
        await site.control._take(stream, control.hello("x" * WHOLE_BYTES))
    await site.control._take(stream, control.hello("w"))
    with pytest.raises(PeerError, match="no report"):
        await site.control._take(stream, control.hello("x" * WHOLE_BYTES))


async def ended(call: Any) -> grpc.StatusCode:
    """Read to the end, which follows everything sent before it."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    status: grpc.StatusCode = await call.code()
    return status


async def first(messages: Iterator[bytes], count: int) -> AsyncIterator[bytes]:
    """Hand on the first few, and wait."""
    for message in islice(messages, count):
        yield message
    await asyncio.sleep(60)


@pytest.mark.parametrize("kind", ["strangers", "empty_entries", "long_name", "gpus"])
async def test_a_message_beyond_the_limit_is_not_read(site: Site, kind: str) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        method, messages = control.KINDS[kind]
        large = first(messages((), 3_000_000), 1 if method == control.REPORT else 2)
        call: Any = channel.stream_stream(method)(large)
        # A client of Python's gRPC that is still writing tells of its own broken write instead.
        assert await ended(call) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INTERNAL)
    assert site.value("gpu_nodes") == site.value("workers") == 0


async def test_a_name_has_a_length(site: Site) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        call: Any = channel.stream_stream(control.FOLLOW)()
        await call.write(control.hello("x" * 257))
        assert await ended(call) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server made later gives the first message little time."""
    for module in (opening, lane_server):
        monkeypatch.setattr(module, "FIRST_MESSAGE_SECONDS", 0.1)


@pytest.mark.parametrize("method", [control.FOLLOW, control.REPORT])
async def test_a_stream_that_says_nothing_ends(impatient: None, site: Site, method: str) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        call: Any = channel.stream_stream(method)()
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "no message within" in await call.details()


async def test_workers_streams_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_module, "MAX_WORKERS", 2)
    async with grpc.aio.insecure_channel(site.address) as channel:
        method: Any = channel.stream_stream(control.FOLLOW)
        calls = [method() for _ in range(2)]
        for number, call in enumerate(calls):
            await call.write(control.hello(f"w{number}"))
            await call.read()
        late = method()
        await late.write(control.hello("w3"))
        assert await ended(late) is grpc.StatusCode.RESOURCE_EXHAUSTED
        calls[0].cancel()
        await until(lambda: site.value("workers") == 1)
        third = method()
        await third.write(control.hello("w2"))
        assert await third.read() is not grpc.aio.EOF


async def test_a_fault_of_ours_ends_one_stream_and_is_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OverflowError("bug")

    async with grpc.aio.insecure_channel(site.address) as channel:
        call: Any = channel.stream_stream(control.FOLLOW)()
        await call.write(control.hello("w"))
        await call.read()
        monkeypatch.setattr(control_module, "encode_loads", broken)
        site.store.publish(FleetView(MEMBERSHIP, {A.address: 3}))
        assert await ended(call) is grpc.StatusCode.INTERNAL
    assert site.value("worker_faults_total") == 1


def gpu_report(node: str, links: int = 40) -> bytes:
    message = gpu_pb2.GpuReport(node=node)
    message.gpus.add(uuid="GPU-0").nvlinks.links.extend([gpu_pb2.NvLink(active=True)] * links)
    return bytes(message.SerializeToString())


async def test_gpu_readings_are_bounded_until_forgotten(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that has ended takes no more room, but its readings are kept until they are stale."""
    async with grpc.aio.insecure_channel(site.address) as channel:
        method: Any = channel.stream_stream(control.REPORT)
        first = method()
        await first.write(gpu_report("first"))
        assert await first.read() is not grpc.aio.EOF
        one = site.board.reading_bytes
        monkeypatch.setattr(gpu_module, "MAX_KEPT_BYTES", 3 * one)
        for _ in range(3):
            await first.write(gpu_report("first"))
            assert await first.read() is not grpc.aio.EOF
        assert site.board.reading_bytes == one
        for number in range(5):
            other = method()
            await other.write(gpu_report(f"o-{number}"))
            assert await other.read() is not grpc.aio.EOF, "those that have left make room"
            assert site.board.reading_bytes <= 3 * one
            await other.done_writing()
            assert await other.read() is grpc.aio.EOF
        assert set(site.board.readings()) == {"first", "o-3", "o-4"}
        site.board.signals(MEMBERSHIP, float("inf"))
        assert site.board.reading_bytes == one


@pytest.mark.parametrize(("hosts", "gpus"), [(MAX_NODES, 8), (2000, 16)])
async def test_hosts_of_a_large_fleet_have_room(site: Site, hosts: int, gpus: int) -> None:
    """Each with all links and peers."""
    uuids = [f"GPU-{number:08d}-aaaa-bbbb-cccc-0123456789ab" for number in range(gpus)]
    reading = NodeReading(
        0.0,
        tuple(
            GpuReading(
                uuid,
                index,
                "NVIDIA H200",
                nvlinks=tuple(NvLink(link, True, "switch") for link in range(18)),
                peers=tuple(PeerLink(peer, "NVLINK") for peer in uuids if peer != uuid),
                faults=(FaultEvent("xid", "94", 0.0), FaultEvent("xid", "31", 1.0)),
            )
            for index, uuid in enumerate(uuids)
        ),
    )
    message = encode_report("host-1.cluster.example.com", reading, 10.0).SerializeToString()
    _, _, reading_bytes = await GpuReportService(site.board)._read(message)
    assert hosts * reading_bytes < MAX_KEPT_BYTES


async def test_agents_that_report_keep_their_room(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        method: Any = channel.stream_stream(control.REPORT)
        first, second = method(), method()
        await first.write(gpu_report("first"))
        assert await first.read() is not grpc.aio.EOF
        monkeypatch.setattr(gpu_module, "MAX_KEPT_BYTES", site.board.reading_bytes + 10)
        await second.write(gpu_report("second"))
        assert await second.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "no room" in await second.details()
        await first.write(gpu_report("first"))
        assert await first.read() is not grpc.aio.EOF
    await until(lambda: site.value("gpu_report_errors_total") == 1)


async def test_a_report_of_gpus_is_read_in_small_pieces(site: Site) -> None:
    """Of as many GPUs and parts as there may be: the loop turns after each GPU at the latest."""
    turns, now = 0, itertools.count()
    service = GpuReportService(site.board)
    service._turns = Turns(lambda: float(next(now)))
    report = gpu_pb2.GpuReport(node="n")
    for number in range(MAX_GPUS):
        report.gpus.add(uuid=f"GPU-{number}").mig_slices.extend([gpu_pb2.MigSlice()] * MAX_PARTS)
    reading = asyncio.create_task(service._read(report.SerializeToString()))
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    assert len((await reading)[1].gpus) == MAX_GPUS
    assert turns > MAX_GPUS


async def test_a_report_of_gpus_is_bounded_before_it_is_read(site: Site) -> None:
    async with grpc.aio.insecure_channel(site.address) as channel:
        call: Any = channel.stream_stream(control.REPORT)()
        await call.write(b"\x12\x00" * (MAX_REPORT_BYTES // 2 + 1))
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert f"allowed: {MAX_REPORT_BYTES}" in await call.details()


@pytest.mark.parametrize(
    ("method", "message"),
    [(control.FOLLOW, control.hello("x" * 900_000)), (control.REPORT, gpu_report("abuse", 200_000))],
    ids=["worker", "agent"],
)
async def test_a_rejected_stream_leaves_no_garbage(site: Site, method: str, message: bytes) -> None:
    """It would keep messages of a megabyte each until it runs."""
    gc.collect()
    gc.disable()
    try:
        async with grpc.aio.insecure_channel(site.address) as channel:
            for _ in range(3):
                call: Any = channel.stream_stream(method)()
                await call.write(message)
                assert await ended(call) is grpc.StatusCode.INVALID_ARGUMENT
            del call
        await asyncio.sleep(0.1)
        assert not [each for each in gc.get_objects() if isinstance(each, PeerError)]
    finally:
        gc.enable()
