"""Foreign clients at a server of the lane: grpcio, synchronous and asynchronous, h2load and nghttp."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.abuse import lane as attacks
from fleet.lane.server import LaneServer
from fleet.service.serving import HealthNames
from fleet.settings.connections import ConnectionSettings
from testing.lane_client import grpc_message
from warmroute.demo.processes import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from fleet.lane.method import LaneCall

MIB = 1 << 20
STATUS = grpc.StatusCode


class Echo:
    """Sends each message back; `many:N` brings N of a megabyte, `never` none."""

    def __init__(self, served: Served, call: LaneCall) -> None:
        served.calls.append(self)
        self._call = call
        self.messages: list[int] = []
        self.reason = ""
        self._waits = False

    def message(self, data: bytes) -> None:
        self.messages.append(len(data))
        if data.startswith(b"many:"):
            for _ in range(int(data[5:])):
                self._call.write(bytes(MIB))
        elif data.startswith(b"refuse:"):
            self._call.end(7, data[7:].decode())
        elif data == b"never":
            self._waits = True
        else:
            self._call.write(data)

    def half_closed(self) -> None:
        if not self._waits:
            self._call.end()

    def silent(self) -> None:
        self._call.end(4, "silent")

    def ended(self, reason: str) -> None:
        self.reason = reason


class Served:
    """A server, and its calls so far."""

    def __init__(self, address: str, receive_bytes: int = 64 * MIB) -> None:
        self.address = address
        self.calls: list[Echo] = []
        self.peers: set[str] = set()
        self.server = LaneServer(
            "lane",
            address,
            ConnectionSettings(),
            {"/test.Echo/Call": self._begin},
            health=HealthNames(("test.Echo",)),
            receive_bytes=receive_bytes,
        )

    def _begin(self, call: LaneCall) -> Echo:
        self.peers.add(call.peer)
        return Echo(self, call)

    async def over(self, count: int) -> None:
        """Wait until `count` calls have ended from the outside."""
        async with asyncio.timeout(60):
            while sum(bool(call.reason) for call in self.calls) < count:
                await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def serving(address: str, **how: Any) -> AsyncIterator[Served]:
    served = Served(address, **how)
    await served.server.start()
    await served.server.set_ready(ready=True)
    try:
        yield served
    finally:
        await served.server.stop(0)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"unix:{tmp_path}/lane") as one:
        yield one


@contextlib.asynccontextmanager
async def connected(served: Served, *options: tuple[str, Any], **how: Any) -> AsyncIterator[Any]:
    sizes = [(f"grpc.max_{side}_message_length", 64 * MIB) for side in ("send", "receive")]
    async with grpc.aio.insecure_channel(served.address, options=[*sizes, *options], **how) as channel:
        yield channel


def unary(channel: Any, path: str = "/test.Echo/Call") -> Any:
    return channel.unary_unary(path)


def stream(channel: Any) -> Any:
    return channel.stream_stream("/test.Echo/Call")


async def test_unary_calls_at_once(served: Served) -> None:
    async with connected(served) as channel:
        call = unary(channel)
        sent = [str(number).encode() * number for number in range(400)]
        assert await asyncio.gather(*map(call, sent)) == sent


async def test_a_stream_keeps_its_order(served: Served) -> None:
    async def messages() -> AsyncIterator[bytes]:
        for number in range(300):
            yield str(number).encode() * (number % 7)

    async with connected(served) as channel:
        got = [reply async for reply in stream(channel)(messages())]
    assert got == [reply async for reply in messages()]


@pytest.mark.parametrize("size", [0, 65_530, 65_531, 20 * MIB])
async def test_messages_of_any_size(served: Served, size: int) -> None:
    async with connected(served) as channel:
        assert await unary(channel)(bytes(size)) == bytes(size)


async def test_a_slow_reader_gets_all(served: Served) -> None:
    async with connected(served) as channel:
        call = channel.unary_stream("/test.Echo/Call")(b"many:20")
        sizes = []
        async for reply in call:
            sizes.append(len(reply))
            await asyncio.sleep(0.002)
    assert sizes == [MIB] * 20


async def test_a_message_above_the_limit(tmp_path: Path) -> None:
    async with serving(f"unix:{tmp_path}/lane", receive_bytes=MIB) as served, connected(served) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unary(channel)(bytes(MIB + 1))
        assert error.value.code() is STATUS.RESOURCE_EXHAUSTED
        assert await unary(channel)(bytes(MIB)) == bytes(MIB)


async def test_a_cancelled_call_ends(served: Served) -> None:
    async with connected(served) as channel:
        call = stream(channel)()
        await call.write(b"first")
        assert await call.read() == b"first"
        call.cancel()
        await served.over(1)
        assert await unary(channel)(b"next") == b"next"
    assert served.calls[0].reason == "reset"


async def test_a_deadline_ends_the_call(served: Served) -> None:
    async with connected(served) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unary(channel)(b"never", timeout=0.1)
        assert error.value.code() is STATUS.DEADLINE_EXCEEDED
        await served.over(1)
    assert served.calls[0].reason in {"deadline", "reset"}


async def test_texts_of_a_status_arrive(served: Served) -> None:
    text = 'nicht 100 % "möglich"\n\t日本'
    async with connected(served) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unary(channel)(b"refuse:" + text.encode())
    assert (error.value.code(), error.value.details()) == (STATUS.PERMISSION_DENIED, text)


async def test_compressed_messages_are_refused(served: Served) -> None:
    async with connected(served, compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unary(channel)(bytes(10_000))
    assert error.value.code() is STATUS.UNIMPLEMENTED


@pytest.mark.parametrize("path", ["/test.Echo/Other", "/test.Other/Call", "/"])
async def test_an_unknown_method(served: Served, path: str) -> None:
    async with connected(served) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await unary(channel, path)(b"x")
    assert error.value.code() is STATUS.UNIMPLEMENTED


async def test_metadata_is_no_hindrance(served: Served) -> None:
    metadata = [("x-text", "v" * 2000), ("x-bytes-bin", bytes(range(256))), ("x-text", "again")]
    async with connected(served) as channel:
        for _ in range(3):
            assert await unary(channel)(b"x", metadata=metadata) == b"x"


async def test_too_much_metadata_costs_one_call(served: Served) -> None:
    async with connected(served, ("grpc.max_metadata_size", MIB)) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await unary(channel)(b"x", metadata=[("x-text", "v" * 100_000)])
        assert await unary(channel)(b"next") == b"next"


async def test_pings_of_an_idle_client_are_answered(served: Served) -> None:
    """Grpcio's own server ends such a client by "too many pings"."""
    often = {"keepalive_time_ms": 10, "keepalive_timeout_ms": 60_000, "keepalive_permit_without_calls": 1}
    options = [(f"grpc.{name}", value) for name, value in often.items()]
    async with connected(served, *options, ("grpc.http2.max_pings_without_data", 0)) as channel:
        call = stream(channel)()
        await call.write(b"first")
        assert await call.read() == b"first"
        await asyncio.sleep(0.5)
        await call.write(b"second")
        assert await call.read() == b"second"
        await call.done_writing()
        assert await call.code() is STATUS.OK


async def test_calls_outlive_a_drain_and_the_client_reconnects(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/lane"
    async with serving(address) as first, connected(first) as channel:
        call = stream(channel)()
        await call.write(b"before")
        assert await call.read() == b"before"
        stopping = asyncio.create_task(first.server.stop(60))
        await asyncio.sleep(0.05)
        await call.write(b"meanwhile")
        assert await call.read() == b"meanwhile"
        await call.done_writing()
        assert await call.code() is STATUS.OK
        await stopping
        async with serving(address) as second:
            assert await unary(channel)(b"after", wait_for_ready=True, timeout=60) == b"after"
            assert len(second.calls) == 1


async def test_no_call_is_lost_while_servers_change(tmp_path: Path) -> None:
    """GOAWAY lets calls finish that are on their way: a client that waits for a connection fails none."""
    address = f"unix:{tmp_path}/lane"
    async with contextlib.AsyncExitStack() as stack:
        served = await stack.enter_async_context(serving(address))
        channel = await stack.enter_async_context(connected(served))
        over = False

        async def ask() -> int:
            calls = 0
            while not over:
                assert await unary(channel)(b"x", wait_for_ready=True, timeout=60) == b"x"
                calls += 1
            return calls

        asking = [asyncio.create_task(ask()) for _ in range(10)]
        for _ in range(5):
            await asyncio.sleep(0.05)
            await served.server.stop(60)
            served = await stack.enter_async_context(serving(address))
        over = True
        assert min(await asyncio.gather(*asking)) > 0


@pytest.fixture
def in_thread(tmp_path: Path) -> Iterator[Served]:
    """A server on uvloop in a thread of its own."""
    ready, over = threading.Event(), asyncio.Event()
    served: list[Served] = []
    loop: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        async with serving(f"unix:{tmp_path}/lane") as one:
            served.append(one)
            loop.append(asyncio.get_running_loop())
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: uvloop.run(main()))
    thread.start()
    assert ready.wait(60)
    yield served[0]
    loop[0].call_soon_threadsafe(over.set)
    thread.join(60)


def test_synchronous_clients_are_served(in_thread: Served) -> None:
    with grpc.insecure_channel(in_thread.address) as channel:
        calls = [channel.unary_unary("/test.Echo/Call").future(bytes(number)) for number in range(100)]
        assert [len(call.result()) for call in calls] == list(range(100))
        replies = channel.stream_stream("/test.Echo/Call")(iter([b"a", b"b", b"c"]))
        assert list(replies) == [b"a", b"b", b"c"]
        endless = channel.unary_stream("/test.Echo/Call")(b"never")
        endless.cancel()
        with pytest.raises(grpc.RpcError):
            next(endless)
        health = health_pb2_grpc.HealthStub(channel)
        service = health_pb2.HealthCheckRequest(service="test.Echo")
        assert health.Check(service).status == health_pb2.HealthCheckResponse.SERVING
        assert next(iter(health.Watch(service))).status == health_pb2.HealthCheckResponse.SERVING


def tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name}: the package nghttp2-client of Debian has it")
    return path


async def run(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    return out.decode()


_FIELDS = ("content-type: application/grpc", "te: trailers")


@pytest.mark.parametrize("size", [100, 100_000])
async def test_h2load_is_served(tmp_path: Path, size: int) -> None:
    h2load = tool("h2load")
    (tmp_path / "body").write_bytes(grpc_message(bytes(size)))
    address = f"127.0.0.1:{free_port()}"
    async with serving(address):
        fields = [part for field in _FIELDS for part in ("-H", field)]
        load = ("-n", "400", "-c", "4", "-m", "20", "-d", str(tmp_path / "body"))
        out = await run(h2load, *load, *fields, f"http://{address}/test.Echo/Call")
    assert "400 succeeded, 0 failed, 0 errored" in out
    assert "400 2xx" in out


async def test_nghttp_reads_the_trailers(tmp_path: Path) -> None:
    nghttp = tool("nghttp")
    (tmp_path / "body").write_bytes(grpc_message(b"hello"))
    address = f"127.0.0.1:{free_port()}"
    async with serving(address):
        fields = [part for field in _FIELDS for part in ("-H", field)]
        body = ("-d", str(tmp_path / "body"))
        out = await run(
            nghttp, "-v", *body, *fields, "-H", ":method: POST", f"http://{address}/test.Echo/Call"
        )
    assert ":status: 200" in out
    assert "grpc-status: 0" in out
    assert "error" not in out.lower().replace("error_code=no_error", "")


@pytest.mark.parametrize("kind", ["resets", "pings", "half_messages", "replies_by_the_byte"])
async def test_an_honest_client_goes_on_under_attack(kind: str) -> None:
    async with serving(f"127.0.0.1:{free_port()}") as served, connected(served) as channel:
        attack = asyncio.create_task(attacks.attack(served.address, kind, seconds=0.4))
        calls = 0
        while not attack.done():
            assert await unary(channel)(bytes(1000), timeout=60) == bytes(1000)
            calls += 1
        assert await attack > 0
        assert calls
