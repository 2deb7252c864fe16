"""Probes of real sockets for HTTP/1.1: only an answer that proves it counts."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from testing.certificates import Authority
from xds_server.http2.probe import speaks_http1
from xds_server.tls.engine_tls import Dial

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from aiohttp.typedefs import Handler


@contextlib.asynccontextmanager
async def saying(answer: bytes, *, closes: bool = True) -> AsyncIterator[int]:
    """A server that writes the same bytes to every request; yields its port."""
    ended = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        if not closes:
            await ended.wait()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        ended.set()
        server.close()


@pytest.mark.parametrize(
    ("answer", "closes", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True, True),
        (b"HTTP/1.0 404 Not Found\r\n\r\n", False, True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", True, True),
        # SETTINGS, as servers of HTTP/2 begin with.
        (b"\0\0\0\4\0\0\0\0\0", True, False),
        (b"\0\0\x12\4\0\0\0\0\0" + b"\0" * 18, False, False),
        (b"HTTX", True, False),
        # In HTTP/1.1, but perhaps only to say that it is not spoken.
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", True, None),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", True, None),
        (b"HTTP/1.1 505 Version Not Supported\r\n\r\n", True, None),
        # Nothing, or too little to judge by.
        (b"", True, None),
        (b"", False, None),
        (b"HTTP/1.1 20", True, None),
    ],
)
async def test_answer_shows_the_protocol(answer: bytes, closes: bool, expected: bool | None) -> None:
    async with saying(answer, closes=closes) as port:
        assert await speaks_http1("127.0.0.1", port, 0.5 if answer or closes else 0.1) is expected


async def test_absent_engine_stays_unknown() -> None:
    async with saying(b"") as port:
        pass
    assert await speaks_http1("127.0.0.1", port, 60.0) is None


async def test_real_server_answers_the_probe(tmp_path: Path) -> None:
    """In plaintext and in TLS."""
    requests: list[str] = []

    @web.middleware
    async def note(request: web.Request, handler: Handler) -> web.StreamResponse:
        requests.append(f"{request.method} {request.path} {request.host}")
        return await handler(request)

    authority = Authority(tmp_path, "engines")
    pair = authority.issue("engine", "engines.test")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair.certificate_file, pair.key_file)
    client = ssl.create_default_context(cafile=str(authority.file))
    client.set_alpn_protocols(["http/1.1"])
    runner = web.AppRunner(web.Application(middlewares=[note]), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server).start()
        (_, plain), (_, secure) = runner.addresses
        assert await speaks_http1("127.0.0.1", plain, 60.0) is True
        assert await speaks_http1("127.0.0.1", secure, 60.0) is None, "TLS is no answer, nor a refusal"
        assert await speaks_http1("127.0.0.1", secure, 60.0, Dial(client, "engines.test", client)) is True
        assert await speaks_http1("127.0.0.1", secure, 60.0, Dial(client, "other.test", client)) is None
        assert requests == [f"GET /health 127.0.0.1:{port}" for port in (plain, secure)]
    finally:
        await runner.cleanup()


async def test_answer_counts_if_the_engine_does_not_close(tmp_path: Path) -> None:
    """TLS ends by a message from either side; an engine that hangs sends none."""
    authority = Authority(tmp_path, "engines")
    pair = authority.issue("engine", "engines.test")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair.certificate_file, pair.key_file)
    client = ssl.create_default_context(cafile=str(authority.file))
    client.set_alpn_protocols(["http/1.1"])
    ended = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with server.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1000)
            secure.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            ended.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            port = listener.getsockname()[1]
            dial = Dial(client, "engines.test", client)
            assert await speaks_http1("127.0.0.1", port, 5.0, dial) is True
        finally:
            ended.set()
            thread.join()


async def test_no_common_protocol_in_tls_is_a_no() -> None:
    """A fatal alert of 120; any other one says nothing of HTTP."""
    dial = Dial(context := ssl.create_default_context(), "engines.test", context)
    for alert, expected in ((120, False), (40, None)):
        async with saying(b"\x15\3\3\0\2\2" + bytes([alert])) as port:
            assert await speaks_http1("127.0.0.1", port, 60.0, dial) is expected
