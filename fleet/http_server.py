"""An HTTP server whose connections are bounded in number and in time.

Whoever opens connections and says nothing, or half of a request, takes descriptors and memory before any
token is asked for. So a connection without a request in work has a time for its next one, and over the most
connections the one that has waited longest makes room for the newcomer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web

from fleet.binding import cannot_listen, why_not_bound
from fleet.credentials import http_server
from fleet.descriptors import http_connections
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from fleet.tls import Held

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)

HEAD_SECONDS: Final = 10.0
"""From a connection's beginning to the end of its first request's head, the TLS handshake included."""
IDLE_SECONDS: Final = 75.0
"""From a request's handling to the end of the next one's head: longer than scrapers pause."""
REQUEST_SECONDS: Final = 30.0
"""For handling a request, its body included."""
_SHUTDOWN_SECONDS: Final = 1.0
_BACKLOG_CONNECTIONS: Final = 1024
_MOST_HEADERS: Final = 48
_MOST_FIELD_BYTES: Final = 4608
"""Of a header, a token of 4 KiB included: with as many headers, a head takes 216 KiB at most."""
_AGAIN_SECONDS: Final = 0.1
"""After a connection that could not be accepted."""


class _Connection(asyncio.Protocol):
    """A connection from its being accepted to its end: passes everything on to aiohttp's own protocol."""

    def __init__(self, door: HttpServer, sock: socket.socket, inner: web.RequestHandler) -> None:
        self._door = door
        self._sock = sock
        self._inner = inner
        self.transport: asyncio.Transport | None = None
        self.opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # By what it does: uvloop's transports are none of asyncio's classes.
        self.transport = cast("asyncio.Transport", transport)
        self._door.opened(self, transport)
        self._inner.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:
        self._door.forget(self)
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> None:
        self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def end(self) -> None:
        """Close it at once, whatever is in it."""
        if self.transport is not None:
            self.transport.abort()
        elif self.opening is not None:
            self.opening.cancel()
            self._sock.close()


class HttpServer:
    """Serves an application on one TCP address."""

    def __init__(
        self, address: str, application: web.Application, *, field: str, tls: Held | None = None
    ) -> None:
        """`field` is the setting or option that `address` comes from; without `tls` it speaks plaintext."""
        self._address = address
        self._field = field
        self._tls = tls
        application.middlewares.insert(0, self._timed)
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            # The time of a connection is measured here.
            keepalive_timeout=2 * IDLE_SECONDS,
            max_headers=_MOST_HEADERS,
            max_field_size=_MOST_FIELD_BYTES,
        )
        self._most = 0
        self._waiting: dict[_Connection, asyncio.TimerHandle] = {}
        """Connections without a request in work, and what ends them; who waits longest stands first."""
        self._working: set[_Connection] = set()
        self._by_transport: dict[asyncio.BaseTransport, _Connection] = {}
        self._accepting: list[asyncio.Task[None]] = []
        self._sockets: list[socket.socket] = []

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            SettingsError: the address cannot be bound; nothing is left behind.
        """
        host, port = split_host_port(self._address)
        self._most = http_connections()
        context = None if self._tls is None else http_server(self._tls)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        for family, kind, protocol, _, place in await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        ):
            self._sockets.append(listening := socket.socket(family, kind, protocol))
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                listening.bind(place)
            except OSError as error:
                await self.stop()
                raise cannot_listen(self._field, self._address, why_not_bound(error)) from error
            listening.listen(_BACKLOG_CONNECTIONS)
        self._accepting = [asyncio.create_task(self._accept(each, context)) for each in self._sockets]

    async def stop(self) -> None:
        """Close the listener and its connections."""
        for task in self._accepting:
            task.cancel()
        for task in self._accepting:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        for listening in self._sockets:
            listening.close()
        await self._runner.cleanup()
        for connection in (*self._waiting, *self._working):
            connection.end()
            self.forget(connection)

    def forget(self, connection: _Connection) -> None:
        """Take note that a connection has ended."""
        self._working.discard(connection)
        if (timer := self._waiting.pop(connection, None)) is not None:
            timer.cancel()
        if connection.transport is not None:
            self._by_transport.pop(connection.transport, None)

    def opened(self, connection: _Connection, transport: asyncio.BaseTransport) -> None:
        """Take note that a connection can be read."""
        self._by_transport[transport] = connection

    async def _accept(self, listening: socket.socket, context: ssl.SSLContext | None) -> None:
        loop, in_trouble = asyncio.get_running_loop(), False
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as error:
                # The peer has left again, or there are no descriptors.
                if not in_trouble:
                    logger.error("connections to %s cannot be accepted: %s", self._address, error)
                in_trouble = True
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            in_trouble = False
            self._welcome(sock, context)
            # Whoever made room is closed in the loop's next pass: accepting must not run ahead of it.
            await asyncio.sleep(0)

    def _welcome(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        server = self._runner.server
        if len(self._waiting) + len(self._working) >= self._most and self._waiting:
            oldest = next(iter(self._waiting))
            self.forget(oldest)
            oldest.end()
        if server is None or len(self._waiting) + len(self._working) >= self._most:
            sock.close()
            return
        sock.setblocking(False)
        connection = _Connection(self, sock, server())
        self._wait(connection, HEAD_SECONDS)
        connection.opening = asyncio.create_task(self._open(connection, sock, context))

    async def _open(
        self, connection: _Connection, sock: socket.socket, context: ssl.SSLContext | None
    ) -> None:
        """Shake hands, where there is TLS."""
        patience = None if context is None else HEAD_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, sock, ssl=context, ssl_handshake_timeout=patience
            )
        except OSError as error:
            logger.debug("a connection to %s came to nothing: %s", self._address, error)
            self.forget(connection)
            sock.close()

    def _wait(self, connection: _Connection, seconds: float) -> None:
        """Give a connection so long for its next request's head."""
        self._working.discard(connection)
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(seconds, self._over, connection)

    def _over(self, connection: _Connection) -> None:
        self.forget(connection)
        connection.end()

    @web.middleware
    async def _timed(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keep the connection from being ended for its silence while a request is handled."""
        connection = None if request.transport is None else self._by_transport.get(request.transport)
        if connection is not None and (timer := self._waiting.pop(connection, None)) is not None:
            timer.cancel()
            self._working.add(connection)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await handler(request)
        except TimeoutError:
            return web.Response(status=408, text="the request took too long\n")
        finally:
            if connection in self._working:
                self._wait(connection, IDLE_SECONDS)
