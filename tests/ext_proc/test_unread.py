"""Clients that do not read their replies keep a limited number of bytes, and harm no other client."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bench.abuse import slow_readers
from ext_proc import unread as unread_replies
from ext_proc.unread import STALLED_SECONDS, UnreadError, UnreadReplies
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from tests.ext_proc.fake_envoy import DUPLEX, body_message, headers_message, with_mode
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.worlds import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

MEBI = 1 << 20
LIMIT = 8 * MEBI


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("kind", "size"), [("bodies", MEBI), ("large_bodies", 8 * MEBI)])
async def test_unread_replies_have_a_limit(
    kind: str, size: int, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread_replies, "STALLED_SECONDS", 0.5)
    stage = Stage(sample_ratio=0.0)
    stage.server.unread = UnreadReplies(LIMIT)
    server, address = (
        grpc.aio.server(options=[("grpc.max_receive_message_length", 64 * MEBI)]),
        (f"127.0.0.1:{unused_tcp_port}"),
    )
    stage.server.register(server)
    server.add_insecure_port(address)
    await server.start()
    attacking = asyncio.create_task(slow_readers.attack(address, kind, most_bytes=1 << 30, seconds=60.0))

    def full() -> bool:
        return sum(not stream.waits for stream in stage.server._open.values()) > 3 * LIMIT // size

    try:
        await until(full)
        await until(lambda: stage.server.unread.bytes <= LIMIT)
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
    assert stage.server.unread.bytes == 0


class Client:
    """A client that reads a reply when the test permits it."""

    def __init__(self, unread: UnreadReplies, *sizes: int, connection: str = "a") -> None:
        self._connection = connection
        self._permits = asyncio.Semaphore(0)
        self.read = 0
        self.writing = asyncio.create_task(unread.write(self, [bytes(size) for size in sizes]))

    def peer(self) -> str:
        return self._connection

    async def write(self, _: bytes) -> None:
        await self._permits.acquire()
        self.read += 1

    async def reads(self, count: int = 1) -> None:
        for _ in range(count):
            self._permits.release()
        for _ in range(3):
            await asyncio.sleep(0)


HALF = MEBI // 2


async def clients(unread: UnreadReplies, *connections: str) -> list[Client]:
    """Return a client with three replies of half a MiB for each connection."""
    made = [Client(unread, HALF, HALF, HALF, connection=connection) for connection in connections]
    await asyncio.sleep(0)
    return made


async def test_client_that_reads_keeps_its_replies() -> None:
    """An honest stream in the middle of a body, while another client leaves more unread than the limit."""
    clock = Clock()
    unread = UnreadReplies(2 * MEBI, clock)
    (honest,) = await clients(unread, "honest")
    clock.now += STALLED_SECONDS / 2
    hostile = await clients(unread, *["hostile"] * 20)
    unread.drop_stalled()
    await honest.reads()
    clock.now += STALLED_SECONDS - 1.0
    unread.drop_stalled()
    await honest.reads(2)
    await honest.writing
    assert honest.read == 3
    clock.now += 1.0
    unread.drop_stalled()
    assert unread.bytes <= 20 * HALF  # The reply that is being written stays.
    for each in hostile:
        await each.reads(3)
    ended = await asyncio.gather(*(each.writing for each in hostile), return_exceptions=True)
    assert {type(each) for each in ended} == {UnreadError}
    assert unread.bytes == 0


async def test_worst_connection_loses_its_replies_first() -> None:
    clock = Clock()
    unread = UnreadReplies(5 * MEBI, clock)
    made = await clients(unread, "honest", "hostile", "hostile", "hostile", "hostile")
    clock.now += STALLED_SECONDS
    unread.drop_stalled()
    for each in made:
        await each.reads(3)
    assert [each.read for each in made].count(1) == 3
    assert made[0].read == 3
    await asyncio.gather(*(each.writing for each in made), return_exceptions=True)


async def test_new_reply_is_not_refused_while_others_stall() -> None:
    """A single reply, which gRPC cannot take back, may belong to an honest client as well."""
    clock = Clock()
    unread = UnreadReplies(MEBI, clock)
    hostile = Client(unread, 4 * MEBI, connection="hostile")
    await asyncio.sleep(0)
    clock.now += STALLED_SECONDS
    honest = Client(unread, MEBI, connection="honest")
    await honest.reads()
    await honest.writing
    assert unread.bytes == 4 * MEBI
    await hostile.reads()
    await hostile.writing
    assert unread.bytes == 0


async def test_ended_stream_leaves_no_bytes() -> None:
    unread = UnreadReplies(MEBI, Clock())
    client = Client(unread, HALF)
    await asyncio.sleep(0)
    assert unread.bytes == HALF
    client.writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client.writing
    assert unread.bytes == 0
