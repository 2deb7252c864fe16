"""Engines with WebSockets for the tests of upgrades, clients that misbehave, and one that speaks HTTP/2."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import WSMsgType, web
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded, StreamReset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT: Final = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""Key and answer of RFC 6455, 1.3."""
PATH: Final = "/v1/realtime"
HANDSHAKE: Final = (
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    f"sec-websocket-key: {KEY}",
)
"""Headers of one over HTTP/1.1."""


class SocketEngines:
    """HTTP servers on loopback that echo frames on `PATH`, and say who they are and what they saw."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.refusing: dict[str, int] = {}
        """Address to the status with which it refuses handshakes."""
        self.hanging: set[str] = set()
        """Those that never answer a handshake."""
        self.open = 0
        self.closed_with: list[int | None] = []
        self._release = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get(PATH, self._realtime)
        app.router.add_get("/elsewhere", self._realtime)
        app.router.add_get("/v1/models", self._plain)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post(PATH, self._plain)
        app.router.add_options(PATH, self._not_allowed)
        app.router.add_post("/v1/chat/completions", self._plain)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._release.set()
        await self._runner.cleanup()

    async def add(self) -> str:
        """Start one more engine and return its address."""
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        await web.SockSite(self._runner, bound).start()
        return f"127.0.0.1:{bound.getsockname()[1]}"

    async def _realtime(self, request: web.Request) -> web.StreamResponse:
        address = _address(request)
        self.asked[address] += 1
        if request.headers.get("upgrade", "").lower() != "websocket":
            return await self._stream(request)
        if address in self.hanging:
            await self._release.wait()
        if address in self.refusing:
            return web.json_response({"refused_by": address}, status=self.refusing[address])
        ws = web.WebSocketResponse(protocols=("realtime", "chat"), max_msg_size=1 << 26, autoping=True)
        ws.headers["x-seen"] = json.dumps(_seen(request))
        ws.headers["x-address"] = address
        await ws.prepare(request)
        self.open += 1
        try:
            await self._talk(ws, request)
        finally:
            self.open -= 1
            self.closed_with.append(ws.close_code)
        return ws

    async def _talk(self, ws: web.WebSocketResponse, request: web.Request) -> None:
        async for message in ws:
            if message.data == "close":
                await ws.close(code=4001, message=b"as asked")
            elif message.data == "abort":
                assert request.transport is not None
                request.transport.abort()
            elif message.data == "ping":
                await ws.ping(b"from the engine")
            elif message.type is WSMsgType.BINARY:
                await ws.send_bytes(message.data)
            else:
                await ws.send_str(message.data)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream", "x-seen": json.dumps(_seen(request))}
        )
        response.headers["x-address"] = _address(request)
        await response.prepare(request)
        for number in range(3):
            await response.write(f"data: {number}\n\n".encode())
        await response.write_eof()
        return response

    async def _metrics(self, _: web.Request) -> web.Response:
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        return web.Response(text="".join(f'vllm:{name}{{model_name="m"}} 0\n' for name in names))

    async def _not_allowed(self, request: web.Request) -> web.Response:
        return web.json_response({}, status=405, headers={"x-seen": json.dumps(_seen(request))})

    async def _plain(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {"x-seen": json.dumps(_seen(request)), "x-address": _address(request)}
        self.asked[_address(request)] += 1
        return web.json_response({"bytes": len(body)}, headers=headers)


def _address(request: web.Request) -> str:
    assert request.transport is not None
    return f"127.0.0.1:{request.transport.get_extra_info('sockname')[1]}"


def _seen(request: web.Request) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {"http": [f"{request.version.major}.{request.version.minor}"]}
    for name, value in request.headers.items():
        seen.setdefault(name.lower(), []).append(value)
    return seen


async def handshake(
    address: str, lines: Sequence[str], path: str = PATH, method: str = "GET"
) -> tuple[int, dict[str, str], bytes]:
    """Send a handshake as it is written; return status, headers and body of the answer."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        head = [f"{method} {path} HTTP/1.1", "host: engine", *lines, "", ""]
        writer.write("\r\n".join(head).encode())
        async with asyncio.timeout(60):
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in rest)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        return int(first.split()[1]), headers, body
    finally:
        writer.close()


def masked(payload: bytes, opcode: int = 1) -> bytes:
    """One short frame of a client."""
    assert len(payload) < 126
    mask = b"\x01\x02\x03\x04"
    body = bytes(byte ^ mask[i % 4] for i, byte in enumerate(payload))
    return struct.pack("!BB", 0x80 | opcode, 0x80 | len(payload)) + mask + body


class Http2Client:
    """A client that opens one stream by extended CONNECT."""

    def __init__(self, address: str) -> None:
        self._address = address
        config = H2Configuration(client_side=True, validate_outbound_headers=False, header_encoding="utf-8")
        self._h2 = H2Connection(config)
        self.headers: dict[str, str] = {}
        self.data = b""
        self.ended = False

    async def __aenter__(self) -> Self:
        host, port = self._address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        self._h2.initiate_connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.close()

    async def open(self, path: str, further: list[tuple[str, str]]) -> dict[str, str]:
        """Ask for a WebSocket; return the answer's headers."""
        pseudo = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", path)]
        self._h2.send_headers(1, [*pseudo, (":authority", "engine"), *further])
        await self.until(lambda: bool(self.headers))
        return self.headers

    async def send(self, frame: bytes) -> None:
        """Send bytes of the WebSocket."""
        self._h2.send_data(1, frame)
        self._writer.write(self._h2.data_to_send())

    async def until(self, condition: Any) -> None:
        """Read until it is so."""
        self._writer.write(self._h2.data_to_send())
        async with asyncio.timeout(60):
            while not condition():
                received = await self._reader.read(65_536)
                if not received:
                    raise ConnectionError("the connection has ended")
                for event in self._h2.receive_data(received):
                    if isinstance(event, ResponseReceived):
                        self.headers = {str(name): str(value) for name, value in event.headers}
                    elif isinstance(event, DataReceived):
                        self.data += event.data
                    elif isinstance(event, StreamEnded | StreamReset):
                        self.ended = True
                self._writer.write(self._h2.data_to_send())
