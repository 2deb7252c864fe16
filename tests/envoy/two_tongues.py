"""An engine that speaks HTTP/1.1 and HTTP/2 without TLS on one port, the second one well or badly."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Literal, Self

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded
from h2.exceptions import ProtocolError

from tests.envoy.sockets import ACCEPT

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

Manner = Literal["good", "garbage", "goaway", "silent", "none"]


class TwoTongues:
    """Answers every request with the protocol that it came by."""

    def __init__(self, manner: Manner = "good", context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.manner: Manner = manner
        """How HTTP/2 is spoken; `none`: not at all."""
        self.well_for_probes = False
        """Whether it answers `/health` well all the same."""
        self.speaks_http1 = True
        """Else it answers HTTP/1.1 as servers of HTTP/2 alone do: with its SETTINGS, and hangs up."""
        self.address = ""
        self.slow_seconds = 0.0
        self.holding: asyncio.Event | None = None
        """Requests over HTTP/2, except for `/health`, wait for it, if there is one."""
        self.waiting = 0
        """How many have come to wait."""
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in self._writers:
            writer.close()

    def die(self) -> None:
        """End at once, as by SIGKILL: connections are cut, new ones refused."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ProtocolError):
                first = await reader.readexactly(16)
                if first.startswith(b"PRI * HTTP/2.0"):
                    await self._second(first, reader, writer)
                elif not self.speaks_http1:
                    writer.write(b"\0\0\0\4\0\0\0\0\0")
                else:
                    await self._first(first, reader, writer)
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _first(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head += await reader.readuntil(b"\r\n\r\n")
            lines = head.decode().lower().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines[1:] if line)
            if headers.get("upgrade") == "websocket":
                writer.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
                    b"sec-websocket-accept: " + ACCEPT.encode() + b"\r\n\r\n"
                )
                while received := await reader.read(1000):
                    writer.write(received)
                return
            await reader.readexactly(int(headers.get("content-length", "0")))
            await asyncio.sleep(self.slow_seconds)
            body = self._body("HTTP/1.1")
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (len(body), body)
            )
            head = b""

    async def _second(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.manner == "none":
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")
            return
        conn = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        conn.initiate_connection()
        received, paths, sockets = first, {}, set()
        answers: set[asyncio.Task[None]] = set()
        while received:
            for event in conn.receive_data(received):
                if isinstance(event, RequestReceived) and event.headers is not None:
                    headers = {str(name): str(value) for name, value in event.headers}
                    paths[event.stream_id] = headers[":path"]
                    if headers.get(":protocol") == "websocket":
                        sockets.add(event.stream_id)
                        conn.send_headers(event.stream_id, [(":status", "200")])
                elif isinstance(event, DataReceived) and event.stream_id in sockets and event.data:
                    # Frames of a WebSocket (RFC 8441) go back as they came, with their mask.
                    conn.send_data(event.stream_id, event.data)
                elif isinstance(event, StreamEnded):
                    well = self.manner == "good" or (
                        self.well_for_probes and paths[event.stream_id] == "/health"
                    )
                    if well:
                        answers.add(asyncio.create_task(self._answer(conn, writer, event.stream_id, paths)))
                    elif self.manner == "garbage":
                        writer.write(b"\xff" * 40)
                    elif self.manner == "goaway":
                        conn.close_connection(error_code=2, last_stream_id=0)
            writer.write(conn.data_to_send())
            received = await reader.read(65_536)
        for answer in answers:
            answer.cancel()

    async def _answer(
        self, conn: H2Connection, writer: asyncio.StreamWriter, stream: int, paths: dict[int, str]
    ) -> None:
        await asyncio.sleep(self.slow_seconds)
        if self.holding is not None and paths[stream] != "/health":
            self.waiting += 1
            await self.holding.wait()
        with contextlib.suppress(ProtocolError):
            conn.send_headers(stream, [(":status", "200"), ("content-type", "application/json")])
            conn.send_data(stream, self._body("HTTP/2"), end_stream=True)
            writer.write(conn.data_to_send())

    def _body(self, protocol: str) -> bytes:
        return json.dumps({"over": protocol, "address": self.address}).encode()
