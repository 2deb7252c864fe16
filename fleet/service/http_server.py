"""An HTTP server whose connections are bounded in number and in time.

A peer that opens connections and sends nothing, or half of a request, takes descriptors and memory before any
token is checked. So an idle connection has a time limit for its next request, and at the most connections, a
new one replaces the one that has waited longest for a request's body, or otherwise been idle longest.

aiohttp limits each line of a head and the number of its fields, but not the head: 48 fields of 8 KiB are
390 KB for each of 256 connections. It also parses further heads while a request is handled, and accepts any
number of connections. So `Connection` splits the incoming bytes at the ends of heads and bodies, and one
request at a time reaches aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fleet.errors import SettingsError
from fleet.service.admin_access import OPEN_PATHS
from fleet.service.credentials import http_server
from fleet.service.descriptors import http_connections
from fleet.service.listening import Listener

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Awaitable, Callable

    from fleet.service.admin_access import Access

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)

MAX_HEAD_BYTES: Final = 16 * 1024
"""Of a request's line and headers together; scrapers and browsers send less than half of it."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_NEWLINES: Final = b"\r\n"
_WHY: Final = b"the request's line and headers have more than %d bytes\n" % MAX_HEAD_BYTES
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_WHY), _WHY)
)
HEAD_SECONDS: Final = 10.0
"""From the start of a connection to the end of its first request's head, TLS handshake included."""
IDLE_SECONDS: Final = 75.0
"""From the end of a request to the end of the next head: longer than scrapers pause."""
REQUEST_SECONDS: Final = 30.0
"""For handling a request, its body included."""
_SHUTDOWN_SECONDS: Final = 1.0
_MOST_HEADERS: Final = 48
_MOST_PAUSE_SECONDS: Final = 0.02
"""Between two requests, after a slow one."""
_MALFORMED_LOG_SECONDS: Final = 60.0
"""Between two lines about malformed requests."""
_SHOWN_CHARS: Final = 200


class _RequestLog(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log of one server: malformed requests make one line a minute, and no tracebacks."""

    def __init__(self, address: str) -> None:
        super().__init__(logger)
        self._address = address
        self._malformed = 0
        """Since the last line."""
        self._quiet_until = float("-inf")

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        """Log a fault of ours with its traceback; count a peer's."""
        if not isinstance(exc_info, HttpProcessingError):
            super().exception(msg, *args, exc_info=exc_info, **more)
            return
        self._malformed += 1
        now = time.monotonic()
        if now >= self._quiet_until:
            why = exc_info.message[:_SHOWN_CHARS]
            logger.warning(
                "%d malformed requests to %s since the last such line, the newest: %r",
                self._malformed,
                self._address,
                why,
            )
            self._malformed, self._quiet_until = 0, now + _MALFORMED_LOG_SECONDS


async def body_of(request: web.Request) -> bytes:
    """Return a request's whole body.

    Raises:
        web.HTTPException: the peer has left or has sent a malformed body, which is no fault of ours.
    """
    try:
        return await request.read()
    except ConnectionError as error:
        raise web.HTTPBadRequest(reason="the connection ended within the body") from error
    except web.RequestPayloadError as error:
        raise web.HTTPBadRequest(reason="the body cannot be read") from error


class _Stage(Enum):
    """What the next bytes are."""

    HEAD = auto()
    HANDLED = auto()
    """Kept from aiohttp: a request is handled that has no body, or whose handling has not begun."""
    BODY = auto()
    ENDING = auto()
    """Ignored: the connection closes."""


class Connection(asyncio.Protocol):
    """An accepted connection, in front of aiohttp's own protocol."""

    def __init__(
        self, sock: socket.socket, inner: web.RequestHandler, on_end: Callable[[Connection], None]
    ) -> None:
        self.inner = inner
        self._sock = sock
        self._on_end = on_end
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None
        self._stage = _Stage.HEAD
        self._head_bytes = 0
        self._tail = b""
        """The last bytes of an incomplete head: its end may arrive in two pieces."""
        self._body_left = 0
        self._rest = b""
        """Bytes after a head, until its handling begins or ends; reading is paused meanwhile."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - asyncio's
        # A cast, because uvloop's transports are not of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)
        self.inner.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:  # noqa: D102 - asyncio's
        self._on_end(self)
        self._stage, self._rest = _Stage.ENDING, b""
        self.inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:  # noqa: D102 - asyncio's
        if self._stage is _Stage.HEAD:
            self._read_head(data)
        elif self._stage is _Stage.HANDLED:
            self._keep(data)
        elif self._stage is _Stage.BODY:
            self._read_body(data)

    def eof_received(self) -> None:  # noqa: D102 - asyncio's
        self.inner.eof_received()

    def pause_writing(self) -> None:  # noqa: D102 - asyncio's
        self.inner.pause_writing()

    def resume_writing(self) -> None:  # noqa: D102 - asyncio's
        self.inner.resume_writing()

    def begin(self, body_bytes: int) -> None:
        """Pass on the body of the request that is handled now, of `body_bytes`."""
        if self._stage is _Stage.HANDLED and body_bytes:
            self._stage, self._body_left = _Stage.BODY, body_bytes
            self._go_on(self._read_body)

    def finish(self) -> None:
        """Go on to the next request after a handled one; after one with a body, the connection ends."""
        if self._stage is _Stage.BODY:
            self._stage = _Stage.ENDING
        elif self._stage is _Stage.HANDLED:
            self._stage = _Stage.HEAD
            self._go_on(self._read_head)

    @property
    def lacks_body(self) -> bool:
        """Whether a request is handled whose body has not arrived whole."""
        return self._stage is _Stage.BODY and self._body_left > 0

    def end(self) -> None:
        """Close it immediately."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
            self._sock.close()

    def _read_head(self, data: bytes) -> None:
        if not self._head_bytes:
            # Parsers skip empty lines before a request.
            data = data.lstrip(_NEWLINES)
        piece = data[: MAX_HEAD_BYTES - self._head_bytes]
        searched = self._tail + piece
        end = _HEAD_END.search(searched)
        if end is None and len(piece) < len(data):
            self._refuse()
            return
        if end is None:
            self._head_bytes += len(piece)
            self._tail = searched[-2:]
            self.inner.data_received(piece)
            return
        size = end.end() - len(self._tail)
        self._stage, self._head_bytes, self._tail = _Stage.HANDLED, 0, b""
        self.inner.data_received(data[:size])
        self._keep(data[size:])

    def _read_body(self, data: bytes) -> None:
        piece = data[: self._body_left]
        self._body_left -= len(piece)
        if piece:
            self.inner.data_received(piece)

    def _keep(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self._rest += data
            self.transport.pause_reading()

    def _go_on(self, read: Callable[[bytes], None]) -> None:
        """Read the kept bytes, and resume reading."""
        kept, self._rest = self._rest, b""
        if kept and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
            read(kept)

    def _refuse(self) -> None:
        self._stage = _Stage.ENDING
        if self.transport is not None:
            self.transport.write(_TOO_LARGE)
            self.transport.close()


class HttpServer:
    """Serves an application on one TCP address."""

    def __init__(self, access: Access, application: web.Application) -> None:
        self._access = access
        application.middlewares.insert(0, self._timed)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            # This class enforces the time limits of connections.
            keepalive_timeout=2 * IDLE_SECONDS,
            max_headers=_MOST_HEADERS,
            logger=_RequestLog(access.address),
        )
        self._most = 0
        self._waiting: dict[Connection, asyncio.TimerHandle] = {}
        """Idle connections and the timers that end them; the first has been idle longest."""
        self._working: dict[Connection, None] = {}
        """Those of requests that are handled, the oldest first."""
        self._turns = asyncio.Lock()
        self._health_turns = asyncio.Lock()
        self._pause_seconds = 0.0
        self._connections: dict[object, Connection] = {}
        """By aiohttp's protocol, which the requests have."""
        self._listener = Listener(access.field, access.address)

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            SettingsError: the address cannot be bound; nothing is left behind.
        """
        self._most = http_connections()
        context = None if self._access.tls is None else http_server(self._access.tls)
        await self._runner.setup()
        try:
            await self._listener.bind()
        except SettingsError:
            await self.stop()
            raise
        self._listener.accept(partial(self._admit, context))

    async def stop(self) -> None:
        """Close the listener and its connections."""
        await self._listener.close()
        await self._runner.cleanup()
        for connection in (*self._waiting, *self._working):
            connection.end()
            self.forget(connection)

    def forget(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._working.pop(connection, None)
        if (timer := self._waiting.pop(connection, None)) is not None:
            timer.cancel()
        self._connections.pop(connection.inner, None)

    def _admit(self, context: ssl.SSLContext | None, sock: socket.socket) -> None:
        server = self._runner.server
        if len(self._waiting) + len(self._working) >= self._most and (oldest := self._replaced()):
            self.forget(oldest)
            oldest.end()
        if server is None or len(self._waiting) + len(self._working) >= self._most:
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(sock, server(), self.forget)
        self._connections[connection.inner] = connection
        self._wait(connection, HEAD_SECONDS)
        connection.opening = asyncio.create_task(self._open(connection, sock, context))

    def _replaced(self) -> Connection | None:
        """Return the connection that makes room for a new one; None: all are at work."""
        without_body = (connection for connection in self._working if connection.lacks_body)
        return next(without_body, None) or next(iter(self._waiting), None)

    async def _open(
        self, connection: Connection, sock: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """Make the TLS handshake, if there is one."""
        handshake_seconds = None if context is None else HEAD_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, sock, ssl=context, ssl_handshake_timeout=handshake_seconds
            )
        except OSError as error:
            logger.debug("a connection to %s came to nothing: %s", self._access.address, error)
            self.forget(connection)
            sock.close()

    def _wait(self, connection: Connection, seconds: float) -> None:
        """Limit the time until the next request's head."""
        self._working.pop(connection, None)
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(seconds, self._expire, connection)

    def _expire(self, connection: Connection) -> None:
        self.forget(connection)
        connection.end()

    @web.middleware
    async def _timed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Suspend the connection's idle limit while a request is handled.

        The connection ends after a request with a body: otherwise the next bytes would be parsed as a head
        before the response is sent.
        """
        connection = self._connections.get(request.protocol)
        if connection is not None and (timer := self._waiting.pop(connection, None)) is not None:
            timer.cancel()
            self._working[connection] = None
        try:
            if request.body_exists and request.content_length is None:
                response: web.StreamResponse = web.Response(
                    status=411, text="a body needs a content-length\n"
                )
            else:
                if connection is not None:
                    connection.begin(request.content_length or 0)
                async with asyncio.timeout(REQUEST_SECONDS):
                    response = await self._in_turn(request, handler)
        except TimeoutError:
            response = web.Response(status=408, text="the request took too long\n")
        except web.HTTPException as answer:
            if request.body_exists:
                answer.force_close()
            raise
        finally:
            if connection is not None:
                connection.finish()
            if connection in self._working:
                self._wait(connection, IDLE_SECONDS)
        if request.body_exists:
            response.force_close()
        return response

    async def _in_turn(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Start one request in a pass of the loop, and pause after a slow one.

        A page takes milliseconds: those of all connections at once would delay picks. Health and readiness
        are short and have turns of their own, so that no page delays them.
        """
        if request.path in OPEN_PATHS:
            async with self._health_turns:
                await asyncio.sleep(0)
            return await handler(request)
        async with self._turns:
            pause, self._pause_seconds = self._pause_seconds, 0.0
            await asyncio.sleep(pause)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            return await handler(request)
        finally:
            took = min(loop.time() - began, _MOST_PAUSE_SECONDS)
            self._pause_seconds = max(self._pause_seconds, took)
