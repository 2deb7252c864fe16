"""An HTTP/1.1 client for load: keep-alive connections and nothing per token.

The host that drives the load also runs everything under test, so the client must cost little: bytes of
a streaming answer are kept as they come, and are parsed once, after the last one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_END_OF_CHUNKS: Final = b"0\r\n\r\n"
_MAX_HEAD_BYTES: Final = 65_536


class ExchangeError(Exception):
    """The exchange broke; the text is the reason that is counted."""

    def __init__(self, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.headers = headers or {}
        """Of the response, where it had begun."""


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response and when its parts came, in seconds of the client's clock."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    first_byte_at: float | None
    """Of the body; None without a body."""
    ended_at: float


class _Connection(asyncio.Protocol):
    """One connection that carries one exchange at a time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._done: asyncio.Future[Response] | None = None
        self.closed = False
        self._reset()

    def _reset(self) -> None:
        self._received = bytearray()
        self._body_at = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._length: int | None = None
        self._first_byte_at: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods without the base class.
        self._transport = cast("asyncio.Transport", transport)

    def exchange(self, request: bytes) -> asyncio.Future[Response]:
        """Send a request; the future ends with its response or with ExchangeError."""
        assert self._transport is not None
        self._reset()
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        """Drop the connection and its exchange."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if not self._body_at and not self._read_head():
            return
        if self._first_byte_at is None and len(received) > self._body_at:
            self._first_byte_at = self._clock()
        if self._length is None:
            if received.endswith(_END_OF_CHUNKS):
                self._try_chunks()
        elif len(received) - self._body_at >= self._length:
            self._finish(bytes(received[self._body_at :]))

    def _read_head(self) -> bool:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _MAX_HEAD_BYTES:
                self._fail("head too long")
            return False
        status_line, *fields = self._received[:end].decode("latin-1").split("\r\n")
        self._body_at = end + 4
        self._status = int(status_line.split(" ", 2)[1])
        for field in fields:
            name, _, value = field.partition(":")
            self._headers[name.lower()] = value.strip()
        if self._headers.get("transfer-encoding", "").lower() != "chunked":
            self._length = int(self._headers.get("content-length", "0"))
        return True

    def _try_chunks(self) -> None:
        """Finish when the chunks are complete; a body may end like their terminator by chance."""
        body = unchunk(memoryview(self._received)[self._body_at :])
        if body is not None:
            self._finish(body)

    def _finish(self, body: bytes) -> None:
        if self._headers.get("connection", "").lower() == "close":
            self.closed = True
        if self._done is not None and not self._done.done():
            self._done.set_result(
                Response(self._status, self._headers, body, self._first_byte_at, self._clock())
            )

    def _fail(self, reason: str) -> None:
        self.close()
        if self._done is not None and not self._done.done():
            self._done.set_exception(ExchangeError(reason, self._headers))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the name is the base class's)
        self.closed = True
        self._fail("broken stream" if self._body_at else "connection lost")


def unchunk(data: memoryview) -> bytes | None:
    """Join the chunks of a chunked body; None when they are not complete."""
    raw = bytes(data)
    parts: list[bytes] = []
    at = 0
    while True:
        end = raw.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(raw[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(parts) if raw[end:] == b"\r\n\r\n" else None
        parts.append(raw[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
        if at > len(raw):
            return None


class HttpClient:
    """Keep-alive connections to one address, as many as there are exchanges at a time."""

    def __init__(self, address: str, clock: Callable[[], float]) -> None:
        self.address = address
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._clock = clock
        self._idle: list[_Connection] = []

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Run one exchange.

        Raises:
            ExchangeError: it did not come to its end.
        """
        connection = await self._connection()
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.address}", f"content-length: {len(body)}"]
        extra = headers or {}
        if body and "content-type" not in extra:
            lines.append("content-type: application/json")
        lines += [f"{name}: {value}" for name, value in extra.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        finished = False
        try:
            response = await connection.exchange(head + body)
            finished = True
        finally:
            if finished and not connection.closed:
                self._idle.append(connection)
            else:
                connection.close()
        return response

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: _Connection(self._clock), self._host, self._port
            )
        except OSError as error:
            raise ExchangeError("cannot connect") from error
        return connection

    def close(self) -> None:
        """Close idle connections; running exchanges close their own."""
        while self._idle:
            self._idle.pop().close()
