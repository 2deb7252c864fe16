"""Clients that read none of their replies keep no more than the limit, and hold nobody else up."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bench.abuse import slow_readers
from ext_proc.protocol.unread import Unread, UnreadError
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from tests.ext_proc.fake_envoy import DUPLEX, body_message, headers_message, with_mode
from tests.ext_proc.test_server_stream import Stage

if TYPE_CHECKING:
    from collections.abc import Callable

MEBI = 1 << 20
LIMIT = 8 * MEBI


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("kind", "size"), [("bodies", MEBI), ("large_bodies", 8 * MEBI)])
async def test_unread_replies_have_a_limit_in_all(kind: str, size: int, unused_tcp_port: int) -> None:
    stage = Stage(sample_ratio=0.0)
    stage.server.unread = Unread(LIMIT)
    server, address = (
        grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * MEBI)]),
        (f"127.0.0.1:{unused_tcp_port}"),
    )
    stage.server.register(server)
    server.add_insecure_port(address)
    await server.start()
    attacking = asyncio.create_task(slow_readers.attack(address, kind, seconds=60.0))
    most = 0

    def full() -> bool:
        nonlocal most
        most = max(most, stage.server.unread.now)
        return sum(not stream.waits for stream in stage.server._open.values()) > 3 * LIMIT // size

    try:
        await until(full)
        # One stream may have one message, however large.
        assert most <= LIMIT + 9 * MEBI
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = pb_grpc.ExternalProcessorStub
            call = stub(channel).Process()
            await call.write(with_mode(headers_message(), DUPLEX))
            await call.write(body_message(bytes(50_000), end_of_stream=True))
            echoed = 0
            async with asyncio.timeout(60):
                await call.read()
                while echoed < 50_000:
                    echoed += len(
                        (await call.read()).request_body.response.body_mutation.streamed_response.body
                    )
            call.cancel()
    finally:
        attacking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await attacking
        await server.stop(None)
    await until(lambda: stage.service.streams == 0)
    assert stage.server.unread.now == 0


def reply(size: int) -> pb.ProcessingResponse:
    made = pb.ProcessingResponse()
    made.request_body.response.body_mutation.body = bytes(size)
    return made


class Slow:
    """A client that takes one reply after the other, when it is let."""

    def __init__(self, unread: Unread, *sizes: int) -> None:
        self.reads = asyncio.Event()
        self.read = 0
        self.writing = asyncio.create_task(unread.write(self._write, [reply(size) for size in sizes]))

    async def _write(self, _: pb.ProcessingResponse) -> None:
        await self.reads.wait()
        self.read += 1


async def test_who_has_waited_longest_makes_room_and_ends_behind_its_piece() -> None:
    unread = Unread(2 * MEBI)
    slow = []
    for _ in range(3):
        slow.append(Slow(unread, MEBI // 2, MEBI // 2 - 1000))
        await asyncio.sleep(0)
    assert unread.now < 2 * MEBI
    for each in slow:
        each.reads.set()
    with pytest.raises(UnreadError):
        await slow[0].writing
    assert slow[0].read == 1
    await asyncio.gather(*(each.writing for each in slow[1:]))
    assert [each.read for each in slow[1:]] == [2, 2]
    assert unread.now == 0


async def test_a_reply_in_one_piece_is_refused_where_nobody_can_make_room() -> None:
    """What is being written cannot be taken back."""
    unread = Unread(MEBI)
    alone = Slow(unread, 4 * MEBI)
    await asyncio.sleep(0)
    with pytest.raises(UnreadError):
        await Slow(unread, MEBI).writing
    small = Slow(unread, 100)
    for each in (alone, small):
        each.reads.set()
        await each.writing
    assert unread.now == 0


async def test_a_stream_that_ends_while_its_replies_wait_leaves_nothing() -> None:
    unread = Unread(MEBI)
    slow = Slow(unread, MEBI // 2)
    await asyncio.sleep(0)
    assert unread.now > MEBI // 2
    slow.writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow.writing
    assert unread.now == 0
