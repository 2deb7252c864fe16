"""Probes of real sockets for HTTP/2: engines that speak it, engines that do not, and unknown ones."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events
import pytest
from aiohttp import web
from h2.exceptions import ProtocolError

from fleet.service.turns import Turns
from xds_server.http2.probe import speaks_http2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """Run a server; yields its port."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ProtocolError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(handle, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def probed(talk: Talk, timeout_seconds: float = 60.0) -> bool | None:
    async with serving(talk) as port:
        return await speaks_http2("127.0.0.1", port, timeout_seconds, Turns())


def library(
    *, body: bytes = b"", leaves: bool = False, requests: list[dict[bytes, bytes]] | None = None
) -> Talk:
    """A server by the library h2; `leaves`: it says good-bye after each answer."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        conn.initiate_connection()
        writer.write(conn.data_to_send())
        unsent: dict[int, bytes] = {}
        while received := await reader.read(65_536):
            for event in conn.receive_data(received):
                if isinstance(event, h2.events.RequestReceived):
                    if requests is not None:
                        requests.append({bytes(name): bytes(value) for name, value in event.headers})
                    conn.ping(b"12345678")
                    conn.send_headers(event.stream_id, [(":status", "404")])
                    unsent[event.stream_id] = body
            for stream, rest in tuple(unsent.items()):
                while rest and (most := min(conn.local_flow_control_window(stream), 16_384)):
                    conn.send_data(stream, rest[:most])
                    rest = rest[most:]
                unsent[stream] = rest
                if not rest:
                    del unsent[stream]
                    conn.end_stream(stream)
                    if leaves:
                        conn.close_connection(last_stream_id=stream)
            writer.write(conn.data_to_send())

    return talk


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


HEADERS = 1


async def read_frame(reader: asyncio.StreamReader) -> int:
    """Read a frame; returns its type."""
    head = await reader.readexactly(9)
    await reader.readexactly(int.from_bytes(head[:3]))
    return head[3]


def raw(first: bytes, then: bytes = b"", *, closes: bool = True) -> Talk:
    """A server that writes fixed bytes after the preface and after the first request."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24)
        await read_frame(reader)
        writer.write(first)
        while then and await read_frame(reader) != HEADERS:
            pass
        writer.write(then)
        await writer.drain()
        if not closes:
            await reader.read()

    return talk


@pytest.mark.parametrize("body", [b"", b"x" * 10_000, b"x" * 100_000], ids=len)
async def test_any_answer_is_good(body: bytes) -> None:
    """Three requests, with pings in between."""
    requests: list[dict[bytes, bytes]] = []
    assert await probed(library(body=body, requests=requests)) is True
    assert len(requests) == 3
    assert (requests[0][b":method"], requests[0][b":path"], requests[0][b":scheme"]) == (
        b"GET",
        b"/health",
        b"http",
    )
    assert requests[0][b":authority"].startswith(b"127.0.0.1:")


async def test_authority_has_brackets_for_ipv6() -> None:
    requests: list[dict[bytes, bytes]] = []
    try:
        async with serving(library(requests=requests), "::1") as port:
            assert await speaks_http2("::1", port, 60.0, Turns()) is True
    except OSError:
        pytest.skip("this host has no IPv6")
    assert requests[0][b":authority"] == f"[::1]:{port}".encode()


async def test_authority_takes_long_host_names(monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[dict[bytes, bytes]] = []
    name = ".".join(["a" * 60] * 3)
    async with serving(library(requests=requests)) as port:
        place = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))

        async def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [place]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        assert await speaks_http2(name, port, 60.0, Turns()) is True
    assert requests[0][b":authority"] == f"{name}:{port}".encode()


async def test_one_answer_a_connection_is_allowed() -> None:
    assert await probed(library(leaves=True)) is True


SETTINGS = frame(4, 0)
OK = b"\x88"
"""`:status: 200` in HPACK."""
TABLE_UPDATES = b"\x3e\x3f\xe1\x1f" * 4000
"""The most expensive header block of its size."""


async def test_goaway_before_the_last_answer_is_allowed() -> None:
    """As nginx announces that it closes: RFC 9113, 6.8."""
    talk = raw(SETTINGS, frame(7, 0, struct.pack("!II", 1, 0)) + frame(1, 1, OK, 5))
    assert await probed(talk) is True


class CountingReader(asyncio.StreamReader):
    """Counts the bytes that the probe reads."""

    count = 0

    async def readexactly(self, n: int) -> bytes:
        data = await super().readexactly(n)
        self.count += len(data)
        return data


@pytest.mark.parametrize(
    ("piece", "most_bytes"),
    [
        (frame(6, 0, b"12345678"), 200 * 17),
        (frame(9, 1, TABLE_UPDATES), 3 * 16_384),
        (frame(0, 1, b"x" * 16_384), 200 * 16_393),
        ((2**24 - 1).to_bytes(3, "big") + b"\0\0\0\0\0\1", 9),
    ],
    ids=["frames", "headers", "body", "one-frame"],
)
async def test_endless_answer_is_bounded(
    monkeypatch: pytest.MonkeyPatch, piece: bytes, most_bytes: int
) -> None:
    """The bytes that the probe reads before it gives up."""
    begin = SETTINGS + frame(1, 1, TABLE_UPDATES if piece[3] == 9 else OK, 0 if piece[3] == 9 else 4)
    connect = asyncio.open_connection
    readers: list[CountingReader] = []

    async def connected(
        host: str, port: int, **_options: object
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        _, writer = await connect(host, port)
        reader = CountingReader()
        reader.feed_data(begin + 300 * piece)
        readers.append(reader)
        return reader, writer

    async with serving(raw(b"")) as port:
        monkeypatch.setattr(asyncio, "open_connection", connected)
        assert await speaks_http2("127.0.0.1", port, 60.0, Turns()) is False
    assert readers[0].count <= len(begin) + most_bytes


def fields(*pairs: tuple[bytes, bytes], flags: int = 5) -> bytes:
    """A HEADERS frame of literal fields, which ends the stream."""
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in pairs)
    return frame(1, 1, block, flags)


STATUS = b":status", b"200"
LAST = frame(7, 0, struct.pack("!II", 1, 0))
"""GOAWAY: the probe ends with the first answer."""


@pytest.mark.parametrize(
    "answer",
    [
        fields(),
        fields((b"server", b"x")),
        fields((b":status", b"20")),
        fields((b":status", b"abc")),
        fields((b":status", b"101")),
        fields(STATUS, STATUS),
        fields((b"server", b"x"), STATUS),
        fields(STATUS, (b":method", b"GET")),
        fields(STATUS, (b"Server", b"x")),
        fields(STATUS, (b"", b"x")),
        fields(STATUS, (b"a b", b"x")),
        fields(STATUS, (b"connection", b"close")),
        fields(STATUS, (b"keep-alive", b"timeout=5")),
        fields(STATUS, (b"transfer-encoding", b"chunked")),
        fields(STATUS, flags=4) + frame(3, 1, struct.pack("!I", 0)),
        fields(STATUS, flags=4) + frame(3, 1, struct.pack("!I", 2)),
        fields(STATUS, flags=4) + frame(0, 1, b"x") + frame(3, 1, struct.pack("!I", 8)),
    ],
    ids=[
        "none", "no-status", "short-status", "no-number", "switching", "two-statuses", "late-status",
        "method", "upper-case", "no-name", "space-in-name", "connection", "keep-alive",
        "transfer-encoding", "reset-without-error", "reset", "reset-in-body",
    ],
)  # fmt: skip
async def test_an_answer_that_envoy_does_not_serve_is_bad(answer: bytes) -> None:
    """Envoy 1.40 answers 502 for it, with UPE, or cuts its client's answer, with UR."""
    assert await probed(raw(SETTINGS, LAST + answer)) is False


@pytest.mark.parametrize(
    "answer",
    [
        fields(STATUS, (b"x", b" y ")),
        fields((b":status", b"999"), (b"a!#$%&'*+.^_`|~9", b"")),
        fields((b":status", b"103"), flags=4) + fields(STATUS),
        fields(STATUS) + frame(3, 1, struct.pack("!I", 8)),
    ],
    ids=["spaces", "odd", "early-hints", "reset-after-the-end"],
)
async def test_an_answer_that_envoy_serves_is_good(answer: bytes) -> None:
    assert await probed(raw(SETTINGS, LAST + answer)) is True


@pytest.mark.parametrize(
    "talk",
    [
        raw(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"),
        raw(b""),
        raw(frame(6, 0, b"12345678")),
        raw(SETTINGS),
        raw(SETTINGS + frame(7, 0, struct.pack("!II", 0, 0))),
        raw(SETTINGS, frame(7, 0, struct.pack("!II", 0, 1))),
        raw(SETTINGS, frame(7, 0)),
        raw(SETTINGS, frame(3, 1, struct.pack("!I", 13))),
        raw(SETTINGS, b"\xff" * 40),
        raw(SETTINGS, frame(6, 0, b"12345678") * 300),
    ],
    ids=[
        "http1", "closes", "no-settings", "closes-later", "goaway", "goaway-error", "goaway-cut",
        "needs-http1", "garbage", "chatter",
    ],
)  # fmt: skip
async def test_anything_but_an_answer_is_bad(talk: Talk) -> None:
    assert await probed(talk) is False


async def test_real_server_of_http1_is_bad() -> None:
    runner = web.AppRunner(web.Application(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        assert await speaks_http2("127.0.0.1", port, 60.0, Turns()) is False
    finally:
        await runner.cleanup()


async def test_silent_or_absent_engine_stays_unknown() -> None:
    assert await probed(raw(b"", closes=False), timeout_seconds=0.2) is None
    async with serving(raw(b"")) as port:
        pass
    assert await speaks_http2("127.0.0.1", port, 60.0, Turns()) is None
