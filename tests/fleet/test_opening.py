"""Calls that say nothing, or half a message, end; those that say something are heard as if nobody looked."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.abuse import calls
from fleet.service import opening, serving
from fleet.service.serving import GrpcServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

SIZE = 1_000_000
_AIO: Any = grpc.aio


async def echo(_: Any, context: Any) -> None:
    """Send each message back."""
    while (message := await context.read()) is not _AIO.EOF:
        await context.write(message)


async def echo_each(messages: Any, _: Any) -> AsyncIterator[bytes]:
    """The same, with the other way to read."""
    async for message in messages:
        yield message


async def count(messages: Any, _: Any) -> bytes:
    """Tell how many messages came."""
    return b"%d" % len([message async for message in messages])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[GrpcServer]:
    made = GrpcServer("x", f"unix:{tmp_path}/x.sock", receive_bytes=SIZE)
    handlers = {
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
        "EchoEach": grpc.stream_stream_rpc_method_handler(echo_each),
        "Count": grpc.stream_unary_rpc_method_handler(count),
    }
    made.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Test", handlers),))
    await made.start()
    yield made
    await made.stop(0)


@pytest.fixture
async def peer(server: GrpcServer) -> AsyncIterator[calls.Peer]:
    made = await calls.Peer.connect(server.address)
    listening = asyncio.create_task(made.listen())
    yield made
    made.writer.close()
    listening.cancel()
    await asyncio.wait([listening])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


METHODS = (
    calls.CHECK,
    calls.WATCH,
    "/test.Test/Echo",
    "/test.Test/EchoEach",
    "/test.Test/Count",
)


@pytest.mark.parametrize("half", [False, True], ids=["nothing", "half"])
@pytest.mark.parametrize("path", METHODS)
async def test_a_call_without_a_first_message_ends(
    peer: calls.Peer, path: str, monkeypatch: pytest.MonkeyPatch, *, half: bool
) -> None:
    monkeypatch.setattr(opening, "FIRST_MESSAGE_SECONDS", 0.2)
    stream = peer.call(path)
    if half:
        await peer.send(stream, calls.message(bytes(SIZE - 100), SIZE))
    await until(lambda: stream in peer.ended)


async def test_of_many_silent_calls_the_oldest_ends(
    server: GrpcServer, peer: calls.Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "MOST_SILENT", 10)
    streams = [peer.call("/test.Test/Echo") for _ in range(15)]
    await until(lambda: peer.ended >= set(streams[:5]))
    assert peer.ended == set(streams[:5])
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest())


async def test_silent_calls_have_less_time_while_many_wait(
    peer: calls.Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "CROWDED", 3)
    monkeypatch.setattr(opening, "CROWDED_SECONDS", 0.0)
    first = [peer.call("/test.Test/Echo") for _ in range(3)]
    await asyncio.sleep(0.05)
    assert not peer.ended
    peer.call("/test.Test/Echo")
    await until(lambda: peer.ended == {first[0]})


async def test_messages_and_ends_come_as_they_were_sent(server: GrpcServer) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        for method in ("Echo", "EchoEach"):
            call: Any = channel.stream_stream(f"/test.Test/{method}")()
            for number in range(3):
                await call.write(b"%d" % number)
                assert await call.read() == b"%d" % number
            await call.done_writing()
            assert await call.read() is _AIO.EOF
            assert await call.code() is grpc.StatusCode.OK
        for sent in ([], [b""], [b"", b"1", b"2"]):
            counted: Any = channel.stream_unary("/test.Test/Count")
            assert await counted(iter(sent)) == b"%d" % len(sent)


async def test_streams_that_come_at_once_all_say_what_they_mean_to(server: GrpcServer) -> None:
    """A fleet that reconnects: nobody is silent, whatever the number."""

    async def one(channel: Any) -> bytes:
        call = channel.stream_stream("/test.Test/Echo")()
        await call.write(b"x" * 500)
        answer: bytes = await call.read()
        call.cancel()
        return answer

    async with contextlib.AsyncExitStack() as stack:
        own = (("grpc.use_local_subchannel_pool", 1),)
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(server.address, options=own))
            for _ in range(20)
        ]
        answers = await asyncio.gather(*(one(channels[number % 20]) for number in range(1000)))
    assert answers == [b"x" * 500] * 1000


async def test_watches_are_bounded_and_so_are_names(
    server: GrpcServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MAX_WATCHES", 2)
    async with grpc.aio.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
        for watch in watches:
            assert await watch.read()
        assert await stub.Watch(health_pb2.HealthCheckRequest()).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        watches[0].cancel()
        long = stub.Watch(health_pb2.HealthCheckRequest(service="x" * 257))
        assert await long.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_unread_call_accepts_little(server: GrpcServer, peer: calls.Peer) -> None:
    """Without the next read a peer may send little: gRPC's own window is 4 MiB a call."""
    stream = peer.call(calls.WATCH)
    await peer.send(stream, calls.message(b""))
    sending = asyncio.create_task(peer.send(stream, bytes(SIZE)))
    await asyncio.wait([sending], timeout=1.0)
    assert not sending.done()
    sending.cancel()
    await asyncio.wait([sending])
