"""Asking real sockets for HTTP/2: who speaks it, who does not, and who cannot be judged."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events
import pytest
from aiohttp import web
from h2.exceptions import ProtocolError

from xds_server.http2.probe import speaks_http2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def serving(talk: Talk, host: str = "127.0.0.1") -> AsyncIterator[int]:
    """A server of one kind; yields its port."""

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
        return await speaks_http2("127.0.0.1", port, timeout_seconds)


def library(
    *, body: bytes = b"", leaves: bool = False, requests: list[dict[bytes, bytes]] | None = None
) -> Talk:
    """A server by the library h2; `leaves`: it says good-bye after each answer."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
        conn.initiate_connection()
        writer.write(conn.data_to_send())
        while received := await reader.read(65_536):
            for event in conn.receive_data(received):
                if isinstance(event, h2.events.RequestReceived):
                    if requests is not None:
                        requests.append({bytes(name): bytes(value) for name, value in event.headers})
                    conn.ping(b"12345678")
                    conn.send_headers(event.stream_id, [(":status", "404")], end_stream=not body)
                    if body:
                        conn.send_data(event.stream_id, body, end_stream=True)
                    if leaves:
                        conn.close_connection(last_stream_id=event.stream_id)
            writer.write(conn.data_to_send())

    return talk


def frame(kind: int, stream: int, payload: bytes = b"", flags: int = 0) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + payload


def raw(first: bytes, then: bytes = b"", *, closes: bool = True) -> Talk:
    """A server that says something to the preface and something to the first request."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(24 + 9)
        writer.write(first)
        if then:
            await reader.readexactly(9 + 9)
            writer.write(then)
        await writer.drain()
        if not closes:
            await reader.read()

    return talk


@pytest.mark.parametrize("body", [b"", b"x" * 10_000])
async def test_any_answer_is_good(body: bytes) -> None:
    """Three requests that the library reads as they are meant, pings in between."""
    requests: list[dict[bytes, bytes]] = []
    assert await probed(library(body=body, requests=requests)) is True
    assert len(requests) == 3
    assert (requests[0][b":method"], requests[0][b":path"], requests[0][b":scheme"]) == (
        b"GET",
        b"/health",
        b"http",
    )
    assert requests[0][b":authority"].startswith(b"127.0.0.1:")


async def test_an_ipv6_host_stands_in_brackets() -> None:
    requests: list[dict[bytes, bytes]] = []
    try:
        async with serving(library(requests=requests), "::1") as port:
            assert await speaks_http2("::1", port, 60.0) is True
    except OSError:
        pytest.skip("this host has no IPv6")
    assert requests[0][b":authority"] == f"[::1]:{port}".encode()


async def test_one_answer_a_connection_is_allowed() -> None:
    assert await probed(library(leaves=True)) is True


SETTINGS = frame(4, 0)


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
async def test_what_is_no_answer_is_bad(talk: Talk) -> None:
    assert await probed(talk) is False


async def test_a_real_server_of_http1_is_bad() -> None:
    runner = web.AppRunner(web.Application(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        assert await speaks_http2("127.0.0.1", port, 60.0) is False
    finally:
        await runner.cleanup()


async def test_who_is_silent_or_away_is_not_judged() -> None:
    assert await probed(raw(b"", closes=False), timeout_seconds=0.2) is None
    async with serving(raw(b"")) as port:
        pass
    assert await speaks_http2("127.0.0.1", port, 60.0) is None
