"""Services for grpc.aio on the lane: what a client sends and does not read stays with the client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from fleet.lane.budget import Budget
from fleet.lane.context import Services
from fleet.lane.limits import STREAM_WINDOW
from fleet.lane.server import LaneServer
from fleet.service import opening
from fleet.service.serving import add_methods
from fleet.settings.connections import ConnectionSettings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.io

MESSAGE_BYTES = 300_000
LARGE = b"x" * 200_000


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.005)


async def at_rest(value: Callable[[], int]) -> int:
    """Return a value once it no longer changes."""
    before = -1
    while (now := value()) != before:
        before = now
        await asyncio.sleep(0.1)
    return now


class Service:
    """A method of each kind."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.read: list[bytes] = []
        self.written = self.cancelled = 0

    def register(self, server: Any) -> None:
        kinds = {
            "Wait": grpc.stream_unary_rpc_method_handler(self.wait),
            "Echo": grpc.stream_stream_rpc_method_handler(self.echo),
            "Pour": grpc.stream_stream_rpc_method_handler(self.pour),
            "Greet": grpc.unary_unary_rpc_method_handler(self.greet, bytes.decode, str.encode),
            "Refuse": grpc.stream_stream_rpc_method_handler(self.refuse),
            "Fail": grpc.stream_stream_rpc_method_handler(self.fail),
        }
        add_methods(server, "test.Service", kinds)

    async def wait(self, messages: AsyncIterator[bytes], _: Any) -> bytes:
        try:
            async for message in messages:
                self.read.append(message)
                await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return b"%d" % len(self.read)

    async def echo(self, messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await context.send_initial_metadata((("greeting", "hello"), ("peer", context.peer())))
        async for message in messages:
            yield message

    async def pour(self, _: Any, context: Any) -> None:
        await context.read()
        for _ in range(100):
            await context.write(LARGE)
            self.written += 1

    async def greet(self, name: str, _: Any) -> str:
        return f"hello {name}"

    async def refuse(self, _: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")

    async def fail(self, _: Any, context: Any) -> None:
        raise RuntimeError("ours")


class Site:
    """A service behind a server, and channels to it."""

    def __init__(self, path: Path) -> None:
        self.service = Service()
        services = Services()
        self.service.register(services)
        self.budget = Budget(MESSAGE_BYTES, 1 << 30, 1 << 30)
        address, settings = f"unix:{path}/x.sock", ConnectionSettings()
        self.server = LaneServer("x", address, settings, services.methods, budget=self.budget)
        self.channels: list[Any] = []

    def call(self, method: str) -> Any:
        """Call a method on a connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.http2.lookahead_bytes", 1)]
        channel = grpc.aio.insecure_channel(self.server.address, options=options)
        self.channels.append(channel)
        return channel.stream_stream(f"/test.Service/{method}")()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    await site.server.start()
    yield site
    for channel in site.channels:
        await channel.close()
    await site.server.stop(0)


async def test_a_client_sends_no_further_than_its_window(site: Site) -> None:
    call = site.call("Wait")

    async def send() -> None:
        for number in range(100):
            await call.write(b"%09d" % number + b"x" * 10_000)
        await call.done_writing()

    sending = asyncio.create_task(send())
    await until(lambda: len(site.service.read) == 1)
    assert await at_rest(lambda: site.budget.kept) <= 2 * STREAM_WINDOW
    site.service.go_on.set()
    assert await call.read() == b"100"
    assert [int(message[:9]) for message in site.service.read] == [*range(100)]
    assert not site.budget.kept
    await sending


async def test_large_messages_wait_for_those_in_hand(site: Site) -> None:
    calls = [site.call("Wait") for _ in range(5)]
    sending = [asyncio.create_task(call.write(LARGE)) for call in calls]
    await until(lambda: len(site.service.read) > 0)
    in_hand = await at_rest(lambda: site.budget.kept + site.budget.permitted)
    assert in_hand < 3.01 * len(LARGE), "one in hand, and those that were let in before it came"
    site.service.go_on.set()
    await until(lambda: len(site.service.read) == len(calls))
    await asyncio.gather(*sending)


async def test_a_write_waits_for_a_client_that_does_not_read(site: Site) -> None:
    call = site.call("Pour")
    await call.write(b"")
    await until(lambda: site.service.written > 0)
    written = await at_rest(lambda: site.service.written)
    assert written < 50
    for _ in range(100):
        assert await call.read() == LARGE
    assert await call.code() is grpc.StatusCode.OK


async def test_metadata_and_messages_go_both_ways(site: Site) -> None:
    call = site.call("Echo")
    await call.write(b"one")
    assert dict(await call.initial_metadata()) == {"greeting": "hello", "peer": "unix:"}
    assert await call.read() == b"one"
    await call.write(LARGE)
    assert await call.read() == LARGE
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK


async def test_a_single_request_is_read_and_answered(site: Site) -> None:
    call = site.call("Greet")
    await call.write(b"you")
    assert await call.read() == b"hello you"
    empty = site.call("Greet")
    await empty.done_writing()
    assert await empty.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("method", "code", "text"),
    [
        ("Refuse", grpc.StatusCode.INVALID_ARGUMENT, "no"),
        ("Fail", grpc.StatusCode.UNKNOWN, "internal error"),
    ],
)
async def test_errors_end_one_call(site: Site, method: str, code: grpc.StatusCode, text: str) -> None:
    call = site.call(method)
    await call.write(b"")
    assert (await call.code(), await call.details()) == (code, text)


async def test_a_call_that_its_client_leaves_is_cancelled(site: Site) -> None:
    call = site.call("Wait")
    await call.write(b"")
    await until(lambda: len(site.service.read) == 1)
    call.cancel()
    await until(lambda: site.service.cancelled == 1)
    assert not site.budget.kept


async def test_the_oldest_of_too_many_silent_calls_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "MOST_SILENT", 3)
    monkeypatch.setattr("fleet.lane.server.CROWDED", 3)
    oldest = site.call("Echo")
    await oldest.wait_for_connection()
    calls = [site.call("Echo") for _ in range(3)]
    for call in calls:
        await call.wait_for_connection()
    assert await oldest.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    for call in calls:
        await call.write(b"one")
        assert await call.read() == b"one"
