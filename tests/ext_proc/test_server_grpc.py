"""The service on a Unix socket, over both transports: replies, every way a stream can end, what is left."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from tests.ext_proc.fake_envoy import (
    DUPLEX,
    body_message,
    headers_message,
    with_attributes,
    with_mode,
)
from tests.ext_proc.test_duplicate_picks import Others, stage_with
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.transports import TRANSPORTS, serving
from tests.ext_proc.worlds import chat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from ext_proc.server import ExtProcService


class Link:
    """A stage behind a socket, and a stub to it."""

    def __init__(self, stage: Stage, server: ExtProcService, channel: grpc.aio.Channel) -> None:
        self.stage = stage
        self.server = server
        self.channel = channel
        self.stub = pb_grpc.ExternalProcessorStub(channel)

    async def settled(self, reached: Callable[[], bool]) -> None:
        """Wait for what the server does after the client has gone."""
        async with asyncio.timeout(60):
            while not reached():
                await asyncio.sleep(0.002)

    async def holds(self, size: int) -> None:
        """Wait until the one stream there is holds so many bytes."""
        await self.settled(lambda: self.stage.service.buffered.now == size)

    async def idle(self) -> None:
        await self.settled(lambda: self.stage.service.streams == 0)
        assert self.stage.in_flight() == 0


@pytest.fixture(params=TRANSPORTS)
async def link(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Link]:
    stage, address = Stage(sample_ratio=0.0), f"unix:{tmp_path}/s"
    async with (
        serving(stage.service, address, request.param) as server,
        grpc.aio.insecure_channel(address) as channel,
    ):
        yield Link(stage, server, channel)


def whole_body(text: str = "hi") -> Any:
    return with_mode(body_message(chat(text), end_of_stream=True), "BUFFERED")


async def test_one_message_one_reply_and_in_flight_until_the_end(link: Link) -> None:
    call = link.stub.Process()
    await call.write(whole_body())
    reply = await call.read()
    assert reply.WhichOneof("response") == "request_body"
    assert reply.dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert link.stage.in_flight() == 1
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await link.idle()


async def test_full_duplex_over_the_wire(link: Link) -> None:
    call = link.stub.Process()
    await call.write(with_mode(headers_message(), DUPLEX))
    body = chat("long " * 40_000)
    for start in range(0, len(body), 50_000):
        piece = body[start : start + 50_000]
        await call.write(body_message(piece, end_of_stream=start + 50_000 >= len(body)))
    assert (await call.read()).WhichOneof("response") == "request_headers"
    echoed = b""
    ended = False
    while not ended:
        piece = (await call.read()).request_body.response.body_mutation.streamed_response
        echoed += piece.body
        ended = piece.end_of_stream
    assert echoed == body
    call.cancel()
    await link.idle()


async def test_a_body_beyond_grpcs_default_limit_arrives(link: Link) -> None:
    call = link.stub.Process()
    await call.write(whole_body("x" * (5 << 20)))
    assert (await call.read()).WhichOneof("response") == "request_body"
    call.cancel()
    await link.idle()


@pytest.mark.parametrize("rounds", [200])
async def test_streams_cancelled_at_odd_times_leave_nothing(
    link: Link, rounds: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Before the first message, while it is answered, after the reply, between two messages."""
    rng = random.Random(9)

    async def one() -> None:
        call = link.stub.Process()
        try:
            if rng.random() < 0.8:
                await call.write(whole_body(f"text {rng.random()}"))
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.5:
                await asyncio.wait_for(call.read(), rng.random() * 0.01)
        except (TimeoutError, asyncio.CancelledError, grpc.aio.AioRpcError):
            pass
        call.cancel()

    for _ in range(rounds // 20):
        await asyncio.gather(*(one() for _ in range(20)))
    await link.idle()
    assert link.stage.value("warmroute_ext_proc_streams") == 0
    entries = link.stage.world.director.traffic.snapshot()
    assert all(entry.started_total == entry.finished_total for entry in entries)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_connection_that_breaks_ends_its_streams(link: Link) -> None:
    calls = [link.stub.Process() for _ in range(10)]
    for call in calls:
        await call.write(whole_body())
        await call.read()
    assert link.stage.in_flight() == 10
    await link.channel.close()
    await link.idle()


async def test_fault_is_answered_and_next_request_is_routed(
    link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = link.stage.world.director
    real = router.pick
    monkeypatch.setattr(router, "pick", None)
    call = link.stub.Process()
    await call.write(whole_body())
    reply = await call.read()
    assert reply.request_body.ByteSize() == 2, "an unchanged CONTINUE"
    assert "envoy.lb" not in reply.dynamic_metadata.fields
    monkeypatch.setattr(router, "pick", real)
    after = link.stub.Process()
    await after.write(whole_body())
    assert "envoy.lb" in (await after.read()).dynamic_metadata.fields
    call.cancel()
    after.cancel()
    await link.idle()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_stream_that_waits_stops_no_other(tmp_path: Path, transport: str) -> None:
    """Its later messages wait behind the step, while the connection's other streams are answered."""
    others = Others(free=True)
    stage, address = stage_with(others), f"unix:{tmp_path}/s"
    async with (
        serving(stage.service, address, transport),
        grpc.aio.insecure_channel(address) as channel,
        asyncio.timeout(60),
    ):
        stub = pb_grpc.ExternalProcessorStub(channel)
        slow = stub.Process()
        headers = headers_message([(":method", b"POST"), (":path", b"/v1/chat/completions")])
        await slow.write(with_mode(headers, "BUFFERED"))
        await slow.write(body_message(chat("hi"), end_of_stream=True))
        while not stage.value("warmroute_idempotency_in_flight"):
            await asyncio.sleep(0.002)
        for _ in range(3):
            await slow.write(body_message(b"", end_of_stream=True))
        await asyncio.sleep(0.05)  # They have arrived.
        for _ in range(3):
            quick = stub.Process()
            await quick.write(with_mode(headers_message(end_of_stream=True), "BUFFERED"))
            assert (await quick.read()).WhichOneof("response") == "request_headers"
            quick.cancel()
        others.may_answer.set()
        kinds = [(await slow.read()).WhichOneof("response") for _ in range(2)]
        assert kinds == ["request_headers", "request_body"]
        slow.cancel()


@pytest.mark.parametrize("link", ["grpcio"], indirect=True)
async def test_fault_at_the_start_ends_stream_with_ok(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the lane, the edge around each handler does so."""
    with monkeypatch.context() as patch:
        patch.setattr("ext_proc.server.RequestStream", None)
        call = link.stub.Process()
        # No message: the stream ends at its start, perhaps before a write could begin.
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    await link.idle()
    assert link.stage.value("warmroute_ext_proc_faults_total", kind="TypeError") == 1


async def test_attribute_without_utf8_ends_stream_with_ok(
    link: Link, caplog: pytest.LogCaptureFixture
) -> None:
    """A client may send any bytes in a header; an error would fail its request where Envoy fails closed."""
    message = with_attributes(whole_body(), request__path="/caf~")
    method = link.channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")
    for _ in range(3):
        call = method()
        await call.write(message.SerializeToString().replace(b"/caf~", b"/caf\xe9"))
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    await link.idle()
    assert not [record for record in caplog.records if record.exc_info]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert link.stage.value("warmroute_ext_proc_unreadable_messages_total") == 3
    assert not link.stage.value("warmroute_ext_proc_faults_total", kind="DecodeError"), "no fault of ours"


async def test_close_ends_open_streams_with_ok(link: Link) -> None:
    """OK lets Envoy go on without us; an error would fail requests in flight."""
    calls = [link.stub.Process() for _ in range(5)]
    for call in calls:
        await call.write(whole_body())
        await call.read()
    silent = link.stub.Process()
    await silent.wait_for_connection()
    await link.settled(lambda: link.stage.service.streams == 6)
    await link.server.close()
    for call in (*calls, silent):
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK
    await link.idle()


async def test_many_streams_at_once_are_all_answered(link: Link) -> None:
    async def one(number: int) -> str:
        call = link.stub.Process()
        await call.write(whole_body(f"{number} " + "word " * 300))
        reply = await call.read()
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        return reply.dynamic_metadata.fields["warmroute"].struct_value.fields["endpoint"].string_value

    chosen = await asyncio.gather(*(one(number) for number in range(100)))
    assert set(chosen) == {f"10.0.0.{n}:80" for n in range(4)}
    await link.idle()


async def test_close_waits_for_a_body_that_is_on_its_way(link: Link) -> None:
    """In the midst of it Envoy could not take it up; with its end the stream ends by itself, with OK."""
    call = link.stub.Process()
    await call.write(with_mode(headers_message(), DUPLEX))
    body = chat("a" * 500)
    await call.write(body_message(body, end_of_stream=False))
    await link.holds(len(body))
    closing = asyncio.create_task(link.server.close(10.0))
    await call.write(body_message(b"", end_of_stream=True))
    assert (await call.read()).WhichOneof("response") == "request_headers"
    assert (await call.read()).request_body.response.body_mutation.streamed_response.end_of_stream
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await closing
    await link.idle()


async def test_close_waits_for_first_message_of_open_stream(link: Link) -> None:
    """Envoy has sent it, and a body's pieces behind it, before it hears that the stream has ended."""
    call = link.stub.Process()
    await link.settled(lambda: [stream.waits for stream in link.server._open] == [True])
    closing = asyncio.create_task(link.server.close(60.0))
    await asyncio.sleep(0)
    await call.write(with_mode(headers_message(), DUPLEX))
    await call.write(body_message(chat("a" * 500), end_of_stream=True))
    assert (await call.read()).WhichOneof("response") == "request_headers"
    assert (await call.read()).request_body.response.body_mutation.streamed_response.end_of_stream
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await closing


async def test_close_gives_back_what_is_held_when_the_time_is_over(link: Link) -> None:
    """What Envoy has handed over is not lost with us."""
    call = link.stub.Process()
    await call.write(with_mode(headers_message(), DUPLEX))
    body = chat("a" * 500)
    await call.write(body_message(body, end_of_stream=False))
    await link.holds(len(body))
    await link.server.close(0.01)
    assert (await call.read()).WhichOneof("response") == "request_headers"
    piece = (await call.read()).request_body.response.body_mutation.streamed_response
    assert (piece.body, piece.end_of_stream) == (body, False)
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await link.idle()


async def test_who_comes_while_it_closes_goes_on_without_it(link: Link) -> None:
    await link.server.close()
    call = link.stub.Process()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    await link.idle()
