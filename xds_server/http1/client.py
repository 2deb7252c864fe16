"""GET over HTTP/1.1 and kept-alive connections: no redirects, no cookies, no proxies."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import TYPE_CHECKING, Final, Literal, cast

from fleet.cause import cause_of
from fleet.errors import PeerError
from xds_server.http1.answer import Answer, AnswerError, Budget
from xds_server.http1.place import Place, place_of
from xds_server.http1.special import special

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.tls.engine_tls import Dial

FailureKind = Literal["refused", "connect", "timeout", "http_status", "too_large", "protocol"]

CONNECT_SHARE: Final = 0.9
"""Of the time for a page. Without a connection by then the error is a failed connection, not a late page."""
MAX_BYTES_AT_ONCE: Final = 268_435_456
"""Of all bodies in flight."""
_NO_ROUTE: Final = frozenset((errno.EHOSTUNREACH, errno.EHOSTDOWN))
"""Errors of the peer; a host without a network (ENETUNREACH, ENETDOWN) is an error of our own."""
_LATE_FACTOR: Final = 1.5
"""A time-out this much later than planned is an error of our own: this process stood still."""
_IDLE_SECONDS: Final = 15.0
"""A connection is kept for the next request; there is at most one for each request that ran at once."""
_RECEIVE_BYTES: Final = 262_144
"""Received at once, as asyncio's own streams do."""


class FetchError(PeerError):
    """There is no usable answer.

    `status` is that of an answer without a page. `unconnected`: the port accepted no connection in time (a
    slow TLS handshake already has one). `no_route`: there is no route to the host.
    """

    def __init__(
        self,
        kind: FailureKind,
        detail: str,
        *,
        status: int | None = None,
        unconnected: bool = False,
        no_route: bool = False,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind: FailureKind = kind
        self.detail = detail
        self.status = status
        self.unconnected = unconnected
        self.no_route = no_route


class Client:
    """Sends requests; a connection carries one after the other. All calls come from one event loop."""

    def __init__(self, headers: Mapping[str, str], *, keeps: bool = True) -> None:
        """Without `keeps` each request has a connection of its own."""
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._headers += "\r\n" if keeps else "Connection: close\r\n\r\n"
        self._keeps = keeps
        self._budget = Budget(MAX_BYTES_AT_ONCE)
        self._idle: _Idle = {}
        self._context: ssl.SSLContext | None = None
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        """Of all connections: what arrives is read before another one receives. A buffer for each receive
        would cost more than reading a usual page."""

    def close(self) -> None:
        """Close every connection that is kept."""
        for connections in list(self._idle.values()):
            for connection in list(connections):
                connection.close()

    async def get(
        self,
        url: str | Place,
        timeout_seconds: float,
        most_bytes: int,
        dial: Dial | None = None,
        *,
        screened: bool = False,
        key: str = "",
    ) -> tuple[Answer, bytes]:
        """Return an answer of any status and its decoded body, which is empty unless the status is 200.

        URLs are cached; pass a URL that a peer chose as a `Place`. `dial`: the TLS to use; None: the
        system's. `screened`: never connect to a special address, whatever name resolves to it.
        `key`: that of the server's API, sent as a bearer token (RFC 6750); empty: none.

        Raises:
            FetchError: it could not be had within the time and the bytes, counted before and after decoding.
        """
        answer = Answer(most_bytes, self._budget)
        try:
            place = place_of(url) if isinstance(url, str) else url
            async with asyncio.timeout(timeout_seconds):
                connect_seconds = timeout_seconds * CONNECT_SHARE
                head = place.request + (f"Authorization: Bearer {key}\r\n" if key else "")
                request = (head + self._headers).encode("latin-1")
                answer = await self._request(place, request, dial, answer, connect_seconds, screened=screened)
                # zlib leaves Python's lock alone meanwhile, and many empty blocks take it long.
                body = await asyncio.to_thread(answer.decoded) if answer.encoded else answer.decoded()
        except TimeoutError as error:
            raise FetchError("timeout", f"nothing whole within {timeout_seconds:g} s") from error
        except AnswerError as error:
            raise FetchError(error.kind, str(error)) from error
        except (OSError, ValueError) as error:
            # Only the type: the text of some of these has the URL, which may contain a password.
            raise FetchError("protocol", type(error).__name__) from error
        finally:
            answer.free()
        return answer, body

    async def _request(
        self,
        place: Place,
        request: bytes,
        dial: Dial | None,
        answer: Answer,
        connect_seconds: float,
        *,
        screened: bool,
    ) -> Answer:
        key = (place.secure, place.host, place.port, dial, screened)
        while idle := self._idle.get(key):
            connection = idle[-1]
            connection.leave_idle()
            if await self._try_connection(connection, request, answer, key):
                return answer
            # The server has closed it meanwhile, as servers close idle connections.
        connection = await self._new_connection(place, dial, connect_seconds, screened=screened)
        if not await self._try_connection(connection, request, answer, key):
            raise AnswerError("protocol", "the connection was closed without an answer")
        return answer

    async def _try_connection(
        self, connection: _Connection, request: bytes, answer: Answer, key: _Key
    ) -> bool:
        """Send on a connection; returns False if it ended without a byte of an answer."""
        try:
            await connection.exchange(request, answer)
        except AnswerError:
            if answer.begun:
                raise
            return False
        else:
            if self._keeps and answer.keeps and not connection.closed:
                connection.keep_idle(self._idle, key)
            return True
        finally:
            if not connection.idle:
                connection.close()

    async def _new_connection(
        self, place: Place, dial: Dial | None, seconds: float, *, screened: bool
    ) -> _Connection:
        loop = asyncio.get_running_loop()
        began, connecting = loop.time(), False
        try:
            async with asyncio.timeout(seconds):
                hosts = await _addresses(place)
                hosts = _allowed(hosts) if screened else hosts
                connecting = True
                connection = await self._connect(hosts, place.port, began + seconds)
                connecting = False
                if place.secure:
                    context = await self._system_context() if dial is None else dial.context
                    await connection.secure(context, place.host if dial is None else dial.server_name)
                return connection
        except TimeoutError as error:
            unconnected = connecting and loop.time() - began <= seconds * _LATE_FACTOR
            text = f"no connection within {seconds:g} s"
            raise FetchError("connect", text, unconnected=unconnected) from error
        except ConnectionRefusedError as error:
            raise FetchError("refused", cause_of(error)) from error
        except OSError as error:
            raise FetchError("connect", cause_of(error), no_route=error.errno in _NO_ROUTE) from error

    async def _connect(self, hosts: list[str], port: int, deadline: float) -> _Connection:
        """Return a connection without TLS: whether the port accepts one has a meaning of its own."""
        loop = asyncio.get_running_loop()
        for number, host in enumerate(hosts):
            # Some of a host's addresses may be dead: each has its part of the time.
            part = (deadline - loop.time()) / (len(hosts) - number)
            try:
                async with asyncio.timeout(part):
                    _, connection = await loop.create_connection(
                        lambda: _Connection(self._buffer), host, port
                    )
                    return connection
            except OSError:  # a time-out is one
                if number == len(hosts) - 1:
                    raise
        raise OSError(errno.EHOSTUNREACH, "the name has no address")

    async def _system_context(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context)
        return self._context


async def _addresses(place: Place) -> list[str]:
    if place.is_address:
        return [place.host]
    resolved = await asyncio.get_running_loop().getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in resolved))


def _allowed(hosts: list[str]) -> list[str]:
    """Return those of a host's addresses where an engine may be.

    Raises:
        FetchError: there are only others.
    """
    reasons = {host: special(host) for host in hosts}
    allowed = [host for host, why in reasons.items() if not why]
    if hosts and not allowed:
        host, why = next(iter(reasons.items()))
        text = f"its host leads to {host} ({why}); set pools.discovery.special_addresses if it is there"
        raise FetchError("connect", text)
    return allowed


class _Connection(asyncio.BufferedProtocol):
    """One connection: busy, idle or closed."""

    def __init__(self, buffer: memoryview) -> None:
        self.closed = False
        self._buffer = buffer
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._idle_entry: tuple[_Idle, _Key, asyncio.TimerHandle] | None = None

    @property
    def idle(self) -> bool:
        """Whether it waits for the next request."""
        return self._idle_entry is not None

    async def secure(self, context: ssl.SSLContext, name: str) -> None:
        """Speak TLS from now on.

        Raises:
            OSError: the handshake failed.
        """
        transport, secured = self._transport, None
        assert transport is not None
        try:
            loop = asyncio.get_running_loop()
            secured = await loop.start_tls(transport, self, context, server_hostname=name)
            if secured is None:
                raise ConnectionResetError(errno.ECONNRESET, "closed in the TLS handshake")
            self._transport = secured
        finally:
            if secured is None:
                self.closed = True
                transport.abort()

    async def exchange(self, request: bytes, answer: Answer) -> None:
        """Send a request and read its answer.

        Raises:
            AnswerError: there is none, or it exceeds its limits.
        """
        if self.closed or self._transport is None:
            raise AnswerError("protocol", "the connection is closed")
        self._waiter = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        try:
            await self._waiter
        finally:
            self._answer = self._waiter = None

    def keep_idle(self, connections: _Idle, key: _Key) -> None:
        """Wait for the next request, and close after some time without one."""
        self._idle_entry = connections, key, asyncio.get_running_loop().call_later(_IDLE_SECONDS, self.close)
        connections.setdefault(key, []).append(self)

    def leave_idle(self) -> None:
        """End the wait."""
        if self._idle_entry is not None:
            connections, key, timer = self._idle_entry
            self._idle_entry = None
            timer.cancel()
            connections[key].remove(self)
            if not connections[key]:
                del connections[key]

    def close(self) -> None:
        """Close it; a fault has ended it already."""
        self.leave_idle()
        self.closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where bytes are received."""
        del sizehint
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes on to the answer; bytes without a request close the connection."""
        answer, waiter = self._answer, self._waiter
        if answer is None or waiter is None or waiter.done():
            self._abort()
            return
        try:
            answer.take(bytes(self._buffer[:nbytes]))
        except AnswerError as error:
            waiter.set_exception(error)
            self._abort()
        else:
            if answer.done:
                waiter.set_result(None)

    def eof_received(self) -> None:
        """Nothing more comes."""
        self._ended()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        del error
        self._ended()

    def _abort(self) -> None:
        self.leave_idle()
        self.closed = True
        assert self._transport is not None
        self._transport.abort()

    def _ended(self) -> None:
        self.closed = True
        self.leave_idle()
        answer, waiter = self._answer, self._waiter
        if answer is None or waiter is None or waiter.done():
            return
        try:
            answer.end()
            waiter.set_result(None)
        except AnswerError as error:
            waiter.set_exception(error)


_Key = tuple[bool, str, int, "Dial | None", bool]
_Idle = dict[_Key, list[_Connection]]
