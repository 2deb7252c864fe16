"""Whoever may write to the server of a shared index costs warm picks, little memory, and no other worker."""

from __future__ import annotations

import asyncio
import contextlib
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis._parsers
from pydantic import SecretStr

from bench.abuse import shared_stream as abuse
from ext_proc.idempotency.shared import SharedClaims
from ext_proc.shared.index import _READ_ENTRIES
from ext_proc.shared.redis_client import ReplyTooLargeError, bounded_parser
from ext_proc.shared.stream import MOST_REPLY_BYTES, RedisStream, order
from fleet.errors import SettingsError
from fleet.settings import IdempotencySettings
from testing.stream_server import running_server, url_of
from tests.ext_proc.test_shared_stream import BLOCKS, Worker, eventually, shared

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warmroute.demo.processes import Child


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Child]:
    async with running_server(tmp_path) as child:
        yield child


@contextlib.asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    for worker in workers:
        worker.index.start()
    try:
        for worker in workers:
            await eventually(lambda w=worker: w.count("warmroute_shared_connected") == 1)  # type: ignore[misc]
        yield
    finally:
        for worker in workers:
            await worker.index.stop()


@pytest.mark.parametrize("kind", abuse.KINDS)
async def test_workers_share_after_attack(server: Child, tmp_path: Path, kind: str) -> None:
    settings = shared(tmp_path)
    first, second = Worker("a", settings), Worker("b", settings)
    async with running(first, second):
        sent = await abuse.attack(url_of(tmp_path), settings.stream, kind, most_bytes=25 << 20, seconds=1.0)
        assert sent > 0

        def heard() -> bool:
            # What stands before the end of a skip is lost, so one batch says nothing.
            first.index.publish("10.0.0.9:8000", BLOCKS)
            return ("10.0.0.9:8000", BLOCKS) in second.taken

        await eventually(heard)


async def test_highest_id_ends_nothing(server: Child, tmp_path: Path) -> None:
    settings = shared(tmp_path)
    client = RedisStream(settings)._client
    await client.xadd(settings.stream, {b"x": b"y"}, id=abuse.HIGHEST)
    stream = RedisStream(settings)
    added = await stream.add(b"a", b"data", 0.0)
    assert order(added) < order(abuse.HIGHEST.encode())
    assert [entry.data for entry in await stream.newest(10)] == [b"data"]
    await stream.close()
    await client.aclose()


async def test_reply_is_not_read_beyond_limit(server: Child, tmp_path: Path) -> None:
    settings = shared(tmp_path)
    client = RedisStream(settings)._client
    for _ in range(10):
        await client.xadd(settings.stream, {b"w": b"x", b"d": bytes(6 << 20)})
    worker = Worker("a", settings)
    tracemalloc.start()
    try:
        await worker.index.warm_up()
        async with running(worker):
            worker.index.publish("10.0.0.9:8000", BLOCKS)
            await eventually(lambda: worker.count("warmroute_shared_lag_seconds") > 0)
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_REPLY_BYTES
    finally:
        tracemalloc.stop()
    assert worker.count("warmroute_shared_errors_total", kind="ReplyTooLargeError") >= 1
    await client.aclose()


async def test_reading_of_empty_tail_ends(
    server: Child, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries without a block count, too: otherwise all of the stream would be read."""
    settings = shared(tmp_path, tail_blocks=100)
    client = RedisStream(settings)._client
    await abuse.KINDS["nothing"](client, settings.stream)
    worker, asked = Worker("a", settings), 0
    newest = worker.index._stream.newest

    async def counted(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        return await newest(*given)

    monkeypatch.setattr(worker.index._stream, "newest", counted)
    await worker.index.warm_up()
    assert asked == -(-100 // _READ_ENTRIES)
    await worker.index.stop()
    await client.aclose()


class Hostile:
    """A server that answers everything with the same bytes, for ever."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._serving: set[asyncio.Task[None]] = set()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with contextlib.suppress(OSError):
                await reader.read(100)
                while True:
                    writer.write(self._answer)
                    await writer.drain()
                    await asyncio.sleep(0.001)
        finally:
            writer.transport.abort()
            self._serving.discard(task)

    async def end(self) -> None:
        for task in tuple(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)


ANSWERS = {
    "a value without an end": b"$536870912\r\n" + bytes(65_536),
    "a list without an end": b"*1000000000\r\n" + b":1\r\n" * 1000,
    "lists in lists": b"*1\r\n" * 1000,
    "a value of fewer bytes than none": b"*3\r\n$-536870000\r\n$536870912\r\n" + bytes(65_536),
    "a line without an end": b"+" + b"x" * 65_536,
    "long lines": b"*1000000000\r\n" + (b"+" + b"x" * 60_000 + b"\r\n") * 10,
    "junk": b"\x00\xff\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_hostile_server_costs_only_sharing(answer: bytes) -> None:
    hostile = Hostile(answer)
    server = await asyncio.start_server(hostile, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = SecretStr(f"redis://127.0.0.1:{port}")
    faults = 0

    def fault() -> None:
        nonlocal faults
        faults += 1

    flights = SharedClaims(IdempotencySettings(enabled=True, url=url, timeout_seconds=1.0), "w", fault)
    worker = Worker("a", shared(Path("/"), url=url, timeout_seconds=1.0))
    tracemalloc.start()
    try:
        worker.index.start()
        # Unknown: the request goes on.
        assert await flights.claim("0" * 32, 1) is None
        await eventually(lambda: worker.errors >= 2)
        assert faults >= 1
        assert tracemalloc.get_traced_memory()[1] < 4 * MOST_REPLY_BYTES
    finally:
        tracemalloc.stop()
        await worker.index.stop()
        await flights.close()
        await hostile.end()
        server.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"*3\r\n$-299999900\r\n$300000000\r\n" + bytes(1 << 20),
        b"*12\r\n" + (b"+" + b"x" * 60_000 + b"\r\n") * 12,
        b"$8192\r\n" + bytes(8192) + b"\r\n",
    ],
    ids=["a refund", "long lines", "a long value"],
)
async def test_negative_length_gives_no_credit(answer: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(answer)
    reader.feed_eof()
    parser = bounded_parser(4096)(65_536)
    parser.on_connect(SimpleNamespace(_reader=reader, encoder=None))
    with pytest.raises(ReplyTooLargeError):
        await parser.read_response(disable_decoding=True)
    assert len(await reader.read(-1)) >= len(answer) - 65_536, "little was read before"


@pytest.mark.parametrize("lacking", ["_AsyncRESP2Parser", "_read", "_readline"])
def test_library_without_bounded_replies_is_refused(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    if lacking.startswith("_Async"):
        monkeypatch.delattr(redis._parsers, lacking)
    else:
        for parser in redis._parsers._AsyncRESP2Parser.__mro__:
            if lacking in vars(parser):
                monkeypatch.delattr(parser, lacking)
    with pytest.raises(SettingsError, match=f"{lacking}.*pip install 'warmroute"):
        RedisStream(shared(Path("/")))
