"""Probes that test whether an engine speaks HTTP/2 and HTTP/1.1, without risk to a client's request.

The library h2 speaks HTTP/2. It gets one frame at a time, so that frames are bounded before h2 keeps or
decodes them. GOAWAY is read here: h2 accepts no frame after it, although a server may announce with it that
it closes after the answers in progress (RFC 9113, 6.8).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
from functools import partial
from typing import TYPE_CHECKING, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RemoteSettingsChanged, ResponseReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from fleet.endpoint import address_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from fleet.service.turns import Turns
    from xds_server.tls.engine_tls import Dial

    Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_PATH: Final = "/health"
"""It is cheap or absent: any status is an answer."""

_REQUESTS: Final = 3
_FRAME_HEADER_BYTES: Final = 9
_MOST_FRAME_BYTES: Final = 16_384
_MOST_FRAMES: Final = 200
"""Per answer."""
_MOST_CONTROL_BYTES: Final = 16_384
"""Of an answer's frames except DATA: h2 decodes a header block in one piece, at up to 2 µs a byte."""
_DATA, _GOAWAY = 0x0, 0x7
_GOAWAY_FIELDS: Final = struct.Struct("!II")
"""The last stream that the server may still answer, and an error code."""
_CONFIGURATION: Final = H2Configuration(validate_inbound_headers=False)
"""h2 would refuse spaces around a value, which Envoy serves."""
_STATUS: Final = re.compile(rb"(?!101)\d{3}")
_FIELD_NAME: Final = re.compile(
    rb"(?!(?:(?:proxy-)?connection|keep-alive|transfer-encoding|upgrade)$)[!#$%&'*+.^_`|~0-9a-z-]+"
)
"""Of the fields after `:status`. Envoy answers 502 to any other name."""

_STATUS_LINE: Final = b"HTTP/1."
_REFUSALS: Final = frozenset((b"400", b"403", b"421", b"426", b"501", b"505"))
"""Servers of HTTP/2 alone refuse HTTP/1.1 with these, in HTTP/1.1."""
_NO_COMMON_PROTOCOL: Final = "no application protocol"
"""OpenSSL's words for the alert with which ALPN fails. Source: RFC 7301, 3.2."""


async def speaks_http2(host: str, port: int, timeout_seconds: float, turns: Turns) -> bool | None:
    """Return whether an engine answers requests over HTTP/2; None: it was not reached or is silent.

    Its frames are decoded in `turns`: one block of header fields may take tens of milliseconds.
    """
    try:
        async with _connected(host, port, timeout_seconds) as (reader, writer):
            return await _completes_requests(reader, writer, address_of(host, port), turns)
    except (OSError, TimeoutError):
        return None


async def speaks_http1(host: str, port: int, timeout_seconds: float, dial: Dial | None = None) -> bool | None:
    """Return whether an engine answers a request over HTTP/1.1.

    None: it was not reached, is silent or hangs up, or its answer may be a refusal of the protocol.
    """
    request = (
        f"GET {_PATH} HTTP/1.1\r\nhost: {address_of(host, port)}\r\n"
        "user-agent: warmroute\r\nconnection: close\r\n\r\n"
    )
    try:
        async with _connected(host, port, timeout_seconds, dial) as (reader, writer):
            writer.write(request.encode())
            return await _answers_in_http1(reader)
    except (OSError, TimeoutError) as error:
        return False if _NO_COMMON_PROTOCOL in str(error).lower() else None


@contextlib.asynccontextmanager
async def _connected(
    host: str, port: int, timeout_seconds: float, dial: Dial | None = None
) -> AsyncIterator[Connection]:
    ssl, name = (None, None) if dial is None else (dial.http1, dial.server_name)
    async with asyncio.timeout(timeout_seconds):
        reader, writer = await asyncio.open_connection(host, port, ssl=ssl, server_hostname=name)
        try:
            yield reader, writer
        finally:
            if ssl is None:
                writer.close()
            else:
                writer.transport.abort()  # Closing TLS would wait for the engine.
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def _answers_in_http1(reader: asyncio.StreamReader) -> bool | None:
    try:
        line = await reader.readexactly(len(_STATUS_LINE) + len("1 200"))
    except asyncio.IncompleteReadError as error:
        return None if _STATUS_LINE.startswith(error.partial[: len(_STATUS_LINE)]) else False
    if not line.startswith(_STATUS_LINE):
        return False
    return None if line[-3:] in _REFUSALS else True


async def _completes_requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str, turns: Turns
) -> bool:
    connection = H2Connection(_CONFIGURATION)
    connection.initiate_connection()
    writer.write(connection.data_to_send())
    request = ((":method", "GET"), (":scheme", "http"), (":authority", authority), (":path", _PATH))
    try:
        first = await turns.run(partial(connection.receive_data, await _next_frame(reader)))
        # The first frame of a server is its SETTINGS.
        if not first or not isinstance(first[0], RemoteSettingsChanged):
            return False
        for _ in range(_REQUESTS):
            stream = connection.get_next_available_stream_id()
            connection.send_headers(stream, request, end_stream=True)
            if not await _await_response(reader, writer, connection, stream, turns):
                break
    except (ProtocolError, asyncio.IncompleteReadError, ConnectionError):
        return False
    return True


async def _await_response(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connection: H2Connection,
    stream: int,
    turns: Turns,
) -> bool:
    """Read until the request has its answer, whatever its status; False if it is the last on the connection.

    Raises:
        ProtocolError: there is no whole answer, Envoy would not serve it, or it exceeds the limits.
    """
    begun, more, control_bytes = False, True, 0
    for _ in range(_MOST_FRAMES):
        writer.write(connection.data_to_send())
        frame = await _next_frame(reader)
        kind = frame[3]
        if kind == _GOAWAY:
            if _last_answered(frame) < stream:
                # It closes after the request before, as it may: clients retry on another connection.
                return False
            more = False
            continue
        if kind != _DATA:
            control_bytes += len(frame)
            if control_bytes > _MOST_CONTROL_BYTES:
                raise ProtocolError
        for event in await turns.run(partial(connection.receive_data, frame)):
            if isinstance(event, DataReceived):
                connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, ResponseReceived) and event.stream_id == stream:
                begun = _is_served(event.headers)
            elif isinstance(event, StreamEnded | StreamReset) and event.stream_id == stream:
                # After a reset Envoy cuts the answer of its client, whatever the error code.
                if not begun or isinstance(event, StreamReset):
                    raise ProtocolError
                return more
    raise ProtocolError


def _is_served(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether Envoy serves an answer that begins with these fields, rather than a protocol error."""
    (name, status), *fields = [*headers] or [(b"", b"")]
    return (
        name == b":status"
        and _STATUS.fullmatch(status) is not None
        and all(_FIELD_NAME.fullmatch(name) for name, _ in fields)
    )


def _last_answered(goaway: bytes) -> int:
    """Return the last stream that a graceful GOAWAY promises to answer."""
    try:
        last, code = _GOAWAY_FIELDS.unpack_from(goaway, _FRAME_HEADER_BYTES)
    except struct.error as error:
        raise ProtocolError from error
    if code or not last:
        raise ProtocolError
    return int(last)


async def _next_frame(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(_FRAME_HEADER_BYTES)
    size = int.from_bytes(head[:3])
    if size > _MOST_FRAME_BYTES:
        raise ProtocolError
    return head + await reader.readexactly(size)
