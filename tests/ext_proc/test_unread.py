"""Clients that do not read their replies keep a limited number of bytes, and harm no other client."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from bench.abuse import slow_readers
from ext_proc.app import ExtProcServer
from ext_proc.grpcio import GrpcioService
from ext_proc.unread import UnreadError, UnreadReplies
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from fleet.store import FleetStore
from tests.ext_proc.fake_envoy import DUPLEX, body_message, headers_message, with_mode
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.transports import TRANSPORTS, serving
from tests.ext_proc.worlds import settings_with

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from fleet.settings import Settings

MEBI = 1 << 20
LIMIT = 8 * MEBI


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("kind", "size"), [("bodies", MEBI), ("large_bodies", 8 * MEBI)])
async def test_unread_replies_have_a_limit(
    kind: str, size: int, transport: str, unused_tcp_port: int
) -> None:
    stage, address = Stage(sample_ratio=0.0), f"127.0.0.1:{unused_tcp_port}"
    async with serving(stage.service, address, transport, unread_bytes=LIMIT) as server:

        def full() -> bool:
            if isinstance(server, GrpcioService):  # A stream ends there once its client reads.
                return len(server.unread._waiting) > 3 * LIMIT // size and server.unread.bytes <= LIMIT
            return stage.value("warmroute_ext_proc_unread_streams_total") > 3 * LIMIT // size

        attacking = asyncio.create_task(slow_readers.attack(address, kind, most_bytes=1 << 30, seconds=60.0))
        try:
            await until(full)
            async with grpc.aio.insecure_channel(address) as channel:
                assert await echoed(channel, 50_000)
        finally:
            attacking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await attacking
    await until(lambda: stage.service.streams == 0)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_limit_follows_the_bodies_that_may_wait(tmp_path: Path, transport: str) -> None:
    def settings(waiting: int) -> Settings:
        carried = {"address": f"unix:{tmp_path}/s", "transport": transport}
        return settings_with(ext_proc=carried, limits={"held_body_bytes": waiting})

    registry, provider = CollectorRegistry(), TracerProvider()
    server = ExtProcServer(settings(LIMIT), FleetStore(), registry, provider, follow=False)
    before = server._unread.unread_bytes
    await server.apply(settings(2 * LIMIT))
    assert server._unread.unread_bytes - before == LIMIT


async def echoed(channel: grpc.aio.Channel, size: int) -> bool:
    """Send a body in full duplex, and read all of it."""
    stub: Any = pb_grpc.ExternalProcessorStub
    call = stub(channel).Process()
    await call.write(with_mode(headers_message(), DUPLEX))
    await call.write(body_message(bytes(size), end_of_stream=True))
    async with asyncio.timeout(60):
        await call.read()
        while size > 0:
            size -= len((await call.read()).request_body.response.body_mutation.streamed_response.body)
    call.cancel()
    return size == 0


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


async def clients(unread: UnreadReplies, *connections: str, replies: int = 3) -> list[Client]:
    """Return a client with replies of half a MiB for each connection."""
    made = [Client(unread, *[HALF] * replies, connection=connection) for connection in connections]
    await asyncio.sleep(0)
    return made


async def ends(made: list[Client]) -> list[type | None]:
    """Let clients read everything; return the error of each."""
    for each in made:
        await each.reads(20)
    ended = await asyncio.gather(*(each.writing for each in made), return_exceptions=True)
    return [type(each) if each is not None else None for each in ended]


async def test_worst_connection_loses_its_replies() -> None:
    """Above the limit in all, whoever goes above it: the largest streams of the worst connection go."""
    unread = UnreadReplies(5 * MEBI)
    honest = await clients(unread, "honest")
    hostile = await clients(unread, *["hostile"] * 4)
    assert unread.bytes == 5 * MEBI
    late = await clients(unread, "late", replies=2)
    assert unread.bytes <= 5 * MEBI
    assert await ends(honest + late) == [None, None]
    assert sorted(map(str, await ends(hostile))) == sorted(map(str, [UnreadError, None, None, None]))
    assert honest[0].read == 3
    assert unread.bytes == 0


async def test_small_streams_of_the_worst_connection_stay() -> None:
    unread = UnreadReplies(2 * MEBI)
    small = await clients(unread, "proxy", "proxy", replies=2)
    large = await clients(unread, "proxy", replies=5)
    assert await ends(small) == [None, None]
    assert await ends(large) == [UnreadError]
    assert large[0].read == 1


async def test_standstill_below_the_limit_drops_nothing() -> None:
    """Time plays no part: clients, or this worker, may stand still for as long as they like."""
    unread = UnreadReplies(40 * MEBI)
    made = await clients(unread, *["proxy"] * 40)
    assert unread.bytes == 40 * MEBI
    for _ in range(3):
        for each in made:
            await each.reads()
    assert await ends(made) == [None] * 40


async def test_reply_in_one_piece_is_never_dropped() -> None:
    """GRPC cannot take it back, and it counts for nobody."""
    unread = UnreadReplies(MEBI)
    hostile = Client(unread, 4 * MEBI, connection="hostile")
    honest = Client(unread, MEBI, connection="honest")
    await asyncio.sleep(0)
    assert unread.bytes == 0
    assert await ends([hostile, honest]) == [None, None]


async def test_ended_stream_leaves_no_bytes() -> None:
    unread = UnreadReplies(MEBI)
    client = Client(unread, HALF, HALF)
    await asyncio.sleep(0)
    assert unread.bytes == HALF
    client.writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await client.writing
    assert unread.bytes == 0
