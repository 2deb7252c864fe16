"""A probe that tests whether an engine speaks HTTP/2, without risk to a client's request.

Frames are written by hand: a preface, SETTINGS, and a few requests whose header fields need only HPACK's
static table and plain text. Sources: RFC 9113, 3.4, 4.1, 6.4 to 6.8, 8.3; RFC 7541, 6.1, 6.2.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import Final

from fleet.endpoint import address_of

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_REQUESTS: Final = 3
_FRAME_HEADER: Final = 9
_MOST_FRAME_BYTES: Final = 16_384
_MOST_FRAMES: Final = 200
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
_ACK, _END_STREAM, _END_HEADERS = 0x1, 0x1, 0x4
_MISSING_BYTE: Final = b"\xff"
_PATH: Final = b"/health"


class NotHttp2Error(Exception):
    """The engine's answer breaks HTTP/2."""


async def speaks_http2(host: str, port: int, timeout_seconds: float) -> bool | None:
    """Return whether an engine answers requests over HTTP/2; None: it was not reached or is silent."""
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                return await _completes_requests(reader, writer, address_of(host, port))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return None


async def _completes_requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str
) -> bool:
    try:
        writer.write(_PREFACE + _frame(_SETTINGS, 0, 0))
        kind, flags, _, _ = await _next(reader)
        # The first frame of a server is its SETTINGS.
        if kind != _SETTINGS or flags & _ACK:
            return False
        writer.write(_frame(_SETTINGS, _ACK, 0))
        for number in range(_REQUESTS):
            stream = 2 * number + 1
            writer.write(_frame(_HEADERS, _END_STREAM | _END_HEADERS, stream, _request(authority)))
            if not await _await_response(reader, writer, stream):
                break
    except (NotHttp2Error, asyncio.IncompleteReadError, ConnectionError):
        return False
    return True


async def _await_response(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, stream: int) -> bool:
    """Read until the request has its answer, whatever its status; False if it is the last on the connection.

    Raises:
        NotHttp2Error: there is no answer.
    """
    begun, more = False, True
    for _ in range(_MOST_FRAMES):
        kind, flags, on, payload = await _next(reader)
        if kind == _PING and not flags & _ACK:
            writer.write(_frame(_PING, _ACK, 0, payload))
        elif kind == _GOAWAY:
            last, code = struct.unpack_from("!II", payload.ljust(8, _MISSING_BYTE))
            if code or not last:
                raise NotHttp2Error
            if last < stream:
                # It closes after the request before, as it may: clients retry on another connection.
                return False
            more = False
        elif on == stream and kind == _RST_STREAM:
            if not begun:
                raise NotHttp2Error
            return more
        elif on == stream and kind in (_HEADERS, _DATA):
            begun = True
            if flags & _END_STREAM:
                return more
    raise NotHttp2Error


async def _next(reader: asyncio.StreamReader) -> tuple[int, int, int, bytes]:
    head = await reader.readexactly(_FRAME_HEADER)
    size, kind, flags, stream = (
        int.from_bytes(head[:3]),
        head[3],
        head[4],
        int.from_bytes(head[5:]) & 0x7FFFFFFF,
    )
    if size > _MOST_FRAME_BYTES:
        raise NotHttp2Error
    return kind, flags, stream, await reader.readexactly(size)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + struct.pack("!BBI", kind, flags, stream) + payload


def _request(authority: str) -> bytes:
    """GET of a path that is cheap or absent: any status answers it."""
    get, http = b"\x82", b"\x86"
    path, host = _literal(4, _PATH), _literal(1, authority.encode())
    return get + http + path + host


def _literal(index: int, value: bytes) -> bytes:
    """A literal header field without indexing, with its name from the static table."""
    return bytes([index, len(value)]) + value
