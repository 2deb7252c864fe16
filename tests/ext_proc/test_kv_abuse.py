"""A hostile engine gets no more memory and no more of the loop than the limits say, and honest ones go on."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from bench.abuse.kv_events import KINDS, attack, frame, message
from ext_proc.kv.connection import HEARTBEAT_SECONDS, LOST_SECONDS, Connection
from ext_proc.kv.sequence import END, MESSAGE_BYTES, Sequencer
from ext_proc.kv.service import QUEUED_BYTES
from ext_proc.kv.view import Freshness
from ext_proc.kv.zmtp import MAX_FRAMES, MAX_KV_MESSAGE_BYTES, Wire, ZmtpError
from fleet.endpoint import KvEventSource
from tests.ext_proc.kv_publisher import LoopClock, Publisher
from tests.ext_proc.test_kv_service import SIZE, at, first, running, until, view_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def ready(kind: bytes = b"PUB") -> bytes:
    body = b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
    return bytes((4, len(body))) + body


def shaken() -> Wire:
    wire = Wire(b"SUB")
    assert wire.receive(GREETING + ready()) == []
    assert wire.ready
    wire.out.clear()
    return wire


def test_frames_make_messages_however_they_are_cut() -> None:
    long = bytes(range(256)) * 4
    told = [[b"kv", (7).to_bytes(8, "big"), long], [b""], [b"a", b""]]
    data = frame(b"kv", more=True) + frame((7).to_bytes(8, "big"), more=True) + frame(long)
    data += b"\0\0" + b"\x01\x01a" + b"\0\0"
    for size in (1, 2, 3, 7, 64, len(data)):
        wire = shaken()
        messages = []
        for start in range(0, len(data), size):
            messages += wire.receive(data[start : start + size])
        assert messages == told
        assert not wire._buffer


@pytest.mark.parametrize("name", ["endless", "small_frames", "announced"])
def test_message_is_refused_before_it_is_stored(name: str) -> None:
    wire, most = shaken(), 0
    with pytest.raises(ZmtpError, match=r"frames|bytes"):
        for part in KINDS[name]():
            for start in range(0, len(part), 8192):
                wire.receive(part[start : start + 8192])
                most = max(most, len(wire._buffer) + wire._bytes)
    assert most <= MAX_KV_MESSAGE_BYTES + 8192
    assert len(wire._frames) <= MAX_FRAMES


def test_largest_message_is_accepted() -> None:
    payload = bytes(MAX_KV_MESSAGE_BYTES - 8)
    assert shaken().receive(message(3, payload)) == [[b"", (3).to_bytes(8, "big"), payload]]
    with pytest.raises(ZmtpError, match="bytes"):
        shaken().receive(message(3, payload + b"x"))


@pytest.mark.parametrize("size", [1_140_000, 1_250_000, 1_360_000])
def test_large_steps_of_honest_engines_are_accepted(size: int) -> None:
    """10,000 blocks with hashes of 32 bytes, 200,000 new tokens, 40,000 blocks evicted."""
    payload = bytes(size)
    assert shaken().receive(message(3, payload)) == [[b"", (3).to_bytes(8, "big"), payload]]


@pytest.mark.parametrize("told", [
    b"GET / HTTP/1.1\r\n".ljust(64),
    GREETING.replace(b"NULL", b"CURV"),
    GREETING.replace(b"\x7f\x03", b"\x7f\x01"),
    GREETING + frame(b"x"),
    GREETING + ready(b"PULL"),
    GREETING + b"\x04\x07\x05ERROR\x00",
    GREETING + ready() + b"\x08\x00",
    GREETING + ready() + b"\x05\x00",
    GREETING + b"\x06" + (2000).to_bytes(8, "big"),
])  # fmt: skip
def test_other_protocols_are_refused(told: bytes) -> None:
    with pytest.raises(ZmtpError):
        Wire(b"SUB").receive(told)


def test_heartbeats_are_answered_with_their_context() -> None:
    wire = shaken()
    assert wire.receive(b"\x04\x0a\x04PING\0\x01abc") == []
    assert bytes(wire.out) == b"\x04\x08\x04PONGabc"


def test_waiting_messages_are_counted_in_bytes() -> None:
    sequence = Sequencer(replayable=True)
    sequence.limit_bytes = 10 * (1000 + MESSAGE_BYTES)
    sequence.connect()
    sequence.replay_from = None
    for number in range(50):
        sequence.live(number, bytes(1000))
    assert sequence.waiting_bytes == sequence.limit_bytes
    assert not sequence.full, "what comes during a replay is dropped and asked for again"
    sequence.replayed(END, b"")
    assert sequence.replay_from == 10
    while sequence.take() is not None:
        pass
    assert sequence.waiting_bytes == 0
    sequence.disconnect()
    for number in range(10, 30):
        assert sequence.full == (number >= 20)
        sequence.live(number, bytes(1000))


@contextlib.asynccontextmanager
async def attacked(port: int, kind: str, most_bytes: int) -> AsyncIterator[asyncio.Task[int]]:
    task = asyncio.create_task(attack(f"127.0.0.1:{port}", kind, most_bytes=most_bytes, seconds=60.0))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("kind", ["endless", "small_frames", "announced", "pings"])
async def test_a_message_without_an_end_costs_the_connection(
    kind: str, unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        attacked(unused_tcp_port, kind, 64 << 20) as sending,
        Publisher() as honest,
        running(KvEventSource(unused_tcp_port), at(honest)) as made,
    ):
        await until(lambda: made.count("warmroute_kv_event_faults_total", fault="unreadable") >= 2)
        assert not sending.done(), "all of it would have been taken"
        await honest.subscribed()
        await honest.publish(first(2))
        await until(lambda: made.freshness("127.0.0.1:8001") is Freshness.WHOLE)
        await until(lambda: sum(len(t.slot.blocks) for t in made.kv.view.trackers("127.0.0.1:8001")) == 2)
    assert f"127.0.0.1:{unused_tcp_port}" in caplog.text


async def test_a_flood_of_whole_messages_waits_at_the_engine(
    unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flooded: list[int] = []
    """Waiting bytes, whenever the queue was full after a read."""
    is_full = Sequencer.full.fget  # type: ignore[attr-defined]
    assert is_full is not None

    def full(sequence: Sequencer) -> bool:
        if is_full(sequence):
            flooded.append(sequence.waiting_bytes)
        return bool(is_full(sequence))

    monkeypatch.setattr(Sequencer, "full", property(full))
    async with (
        attacked(unused_tcp_port, "large", 256 << 20) as sending,
        Publisher() as honest,
        running(KvEventSource(unused_tcp_port), at(honest)) as made,
    ):
        await until(lambda: flooded)
        await honest.subscribed()
        await honest.publish(first(2))
        await until(lambda: any(t.slot.blocks for t in made.kv.view.trackers("127.0.0.1:8001")))
        limit = made.kv.view.trackers("127.0.0.1:8000")[0].sequence.limit_bytes
        assert max(flooded) <= limit + MAX_KV_MESSAGE_BYTES + MESSAGE_BYTES
        assert not sending.done()


async def test_all_publishers_together_have_one_limit() -> None:
    async with Publisher() as engine, running(at(engine)) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        alone = made.kv.view.trackers("127.0.0.1:8000")[0].sequence.limit_bytes
        made.store.publish(view_of(at(engine), *[KvEventSource(1, ranks=8)] * 8))
        await until(lambda: len([*made.kv.status()]) == 9)
        limits = [t.sequence.limit_bytes for a, _ in made.kv.status() for t in made.kv.view.trackers(a)]
        assert sum(limits) <= QUEUED_BYTES
        assert max(limits) < alone


class Peer:
    """A publisher that shakes hands, and answers as many heartbeats as it is allowed."""

    def __init__(self, *, answers: int = 0) -> None:
        self.pings = 0
        self.gone = asyncio.Event()
        self._answers = answers

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GREETING + ready())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                pings = data.count(b"\x04PING")
                self.pings += pings
                writer.write(b"\x04\x06\x04PONG\0" * min(pings, self._answers))
                self._answers -= pings
        writer.transport.abort()
        self.gone.set()


@contextlib.asynccontextmanager
async def connected(peer: Peer) -> AsyncIterator[Connection]:
    server = await asyncio.start_server(peer, "127.0.0.1", 0)
    connection = Connection(b"SUB")
    async with server:
        await connection.open(*server.sockets[0].getsockname())
        try:
            yield connection
        finally:
            connection.close()
            await peer.gone.wait()


async def test_a_silent_peer_is_asked_and_then_given_up() -> None:
    clock, peer = LoopClock(), Peer()
    async with connected(peer) as connection:
        reading = asyncio.create_task(connection.read())
        heartbeats = round(LOST_SECONDS / HEARTBEAT_SECONDS)
        for asked in range(1, heartbeats):
            await asyncio.sleep(0)
            clock.advance(HEARTBEAT_SECONDS)
            await until(lambda asked=asked: peer.pings == asked)
            assert not reading.done()
        clock.advance(HEARTBEAT_SECONDS)
        with pytest.raises(TimeoutError):
            await reading
    assert peer.pings == heartbeats - 1


async def test_a_stall_of_our_loop_is_no_silence_of_the_peer() -> None:
    clock, peer = LoopClock(), Peer(answers=1)
    async with connected(peer) as connection:
        reading = asyncio.create_task(connection.read())
        await asyncio.sleep(0)
        clock.advance(10 * LOST_SECONDS)
        assert b"PONG" in await reading


async def test_an_idle_engine_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """LibZMQ answers heartbeats, so silence is no fault."""
    pings = answers = 0
    ping, receive = Wire.ping, Wire.receive

    def count_ping(wire: Wire) -> None:
        nonlocal pings
        pings += 1
        ping(wire)

    def count_answer(wire: Wire, data: bytes) -> list[list[bytes]]:
        nonlocal answers
        answers += b"PONG" in data
        return receive(wire, data)

    monkeypatch.setattr(Wire, "ping", count_ping)
    monkeypatch.setattr(Wire, "receive", count_answer)
    clock = LoopClock()
    async with Publisher() as engine, running(at(engine)) as made:
        await until(lambda: made.freshness() is Freshness.WHOLE)
        for heartbeat in range(1, 2 * round(LOST_SECONDS / HEARTBEAT_SECONDS)):
            clock.advance(HEARTBEAT_SECONDS)
            await until(lambda heartbeat=heartbeat: pings == answers == heartbeat)
        assert made.freshness() is Freshness.WHOLE
        await engine.subscribed()
        await engine.publish(first(1))
        await until(lambda: made.matched() == SIZE)
        assert engine.asked == [0]
