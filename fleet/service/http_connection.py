"""A connection of an HTTP server: one request at a time reaches aiohttp, and heads have a limit.

aiohttp limits each field of a head but not the head, and parses the next head while a request is handled. So
the incoming bytes are split here at the ends of heads and bodies.
"""

from __future__ import annotations

import asyncio
import re
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, Protocol, cast

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from aiohttp import web

MAX_HEAD_BYTES: Final = 16 * 1024
"""Of a request's line and headers together; scrapers and browsers send less than half of it."""
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_NEWLINES: Final = b"\r\n"
_WHY: Final = b"the request's line and headers have more than %d bytes\n" % MAX_HEAD_BYTES
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_WHY), _WHY)
)


class Door(Protocol):
    """The server that a connection belongs to."""

    def opened(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Called once a connection can be read."""

    def forget(self, connection: Connection) -> None:
        """Called once a connection has ended."""


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

    def __init__(self, door: Door, sock: socket.socket, inner: web.RequestHandler) -> None:
        self._door = door
        self._sock = sock
        self._inner = inner
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
        self._door.opened(self, transport)
        self._inner.connection_made(transport)

    def connection_lost(self, error: BaseException | None) -> None:  # noqa: D102 - asyncio's
        self._door.forget(self)
        self._stage, self._rest = _Stage.ENDING, b""
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:  # noqa: D102 - asyncio's
        if self._stage is _Stage.HEAD:
            self._read_head(data)
        elif self._stage is _Stage.HANDLED:
            self._keep(data)
        elif self._stage is _Stage.BODY:
            self._read_body(data)

    def eof_received(self) -> None:  # noqa: D102 - asyncio's
        self._inner.eof_received()

    def pause_writing(self) -> None:  # noqa: D102 - asyncio's
        self._inner.pause_writing()

    def resume_writing(self) -> None:  # noqa: D102 - asyncio's
        self._inner.resume_writing()

    def begin(self, body_bytes: int) -> None:
        """Pass on the body of the request that is handled now, of `body_bytes`."""
        if self._stage is _Stage.HANDLED and body_bytes:
            self._stage, self._body_left = _Stage.BODY, body_bytes
            self._go_on(self._read_body)

    def over(self) -> None:
        """Go on to the next request after a handled one; after one with a body, the connection ends."""
        if self._stage is _Stage.BODY:
            self._stage = _Stage.ENDING
        elif self._stage is _Stage.HANDLED:
            self._stage = _Stage.HEAD
            self._go_on(self._read_head)

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
            self._inner.data_received(piece)
            return
        size = end.end() - len(self._tail)
        self._stage, self._head_bytes, self._tail = _Stage.HANDLED, 0, b""
        self._inner.data_received(data[:size])
        self._keep(data[size:])

    def _read_body(self, data: bytes) -> None:
        piece = data[: self._body_left]
        self._body_left -= len(piece)
        if piece:
            self._inner.data_received(piece)

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
