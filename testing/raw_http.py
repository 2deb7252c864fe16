"""HTTP clients that send what libraries hide: chunks, trailers, HTTP/1.0, HTTP/2 without a length."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import h2.connection
import h2.events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LIMIT_SECONDS: Final = 60.0
_READ_BYTES: Final = 65_536
_JSON: Final = {"content-type": "application/json"}


@dataclass(frozen=True)
class Upload:
    """A POST: its body in pieces, and how the body ends."""

    pieces: Sequence[bytes]
    path: str = "/v1/chat/completions"
    headers: Mapping[str, str] = field(default_factory=lambda: _JSON)
    length: bool = False
    """Whether it has a content-length."""
    trailers: bool = False
    version: str = "1.1"
    """Of HTTP/1."""
    pause: asyncio.Event | None = None
    """The last piece waits for it."""

    @property
    def fields(self) -> dict[str, str]:
        """The headers, without those of HTTP/2."""
        length = {"content-length": str(sum(map(len, self.pieces)))} if self.length else {}
        return {**self.headers, **length}


@dataclass(frozen=True)
class Reply:
    """A response; status 0: the connection or stream ended without one."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    version: str = ""
    """Of its status line."""


async def over_http1(address: str, upload: Upload) -> Reply:
    """Send by HTTP/1, and read the response while sending."""
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
    sending = asyncio.create_task(_send_http1(writer, address, upload))
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            return await _read_http1(reader)
    finally:
        sending.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await sending
        writer.transport.abort()


async def _send_http1(writer: asyncio.StreamWriter, address: str, upload: Upload) -> None:
    fields = {"host": address, **upload.fields}
    if not upload.length:
        fields["transfer-encoding"] = "chunked"
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    writer.write(f"POST {upload.path} HTTP/{upload.version}\r\n{lines}\r\n".encode())
    for number, piece in enumerate(upload.pieces, 1):
        if number == len(upload.pieces) and upload.pause is not None:
            await upload.pause.wait()
        writer.write(piece if upload.length else b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
        await writer.drain()
    if not upload.length:
        writer.write(b"0\r\n" + b"x-sum: 1\r\n" * upload.trailers + b"\r\n")
        await writer.drain()


async def _read_http1(reader: asyncio.StreamReader) -> Reply:
    status = 100
    while status == 100:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError):
            return Reply(0, {}, b"")
        first, *lines = head.split("\r\n")
        version, number, *_ = first.split(" ")
        status = int(number)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif headers.get("transfer-encoding") == "chunked":
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
    else:
        body = await reader.read()
    return Reply(status, headers, body, version)


async def over_http2(address: str, upload: Upload) -> Reply:
    """Send by HTTP/2 with prior knowledge; empty pieces become empty DATA frames."""
    reader, writer = await asyncio.open_connection(*address.rsplit(":", 1))
    connection = h2.connection.H2Connection()
    connection.initiate_connection()
    stream = connection.get_next_available_stream_id()
    pseudo = {":method": "POST", ":scheme": "http", ":authority": address, ":path": upload.path}
    connection.send_headers(stream, [*pseudo.items(), *upload.fields.items()])
    waiting, status, headers, body = list(upload.pieces), 0, dict[str, str](), b""
    last = [] if upload.pause is None else [waiting.pop()]

    def send() -> None:
        _send_http2(connection, stream, waiting, ends=not last, trailers=upload.trailers)
        writer.write(connection.data_to_send())

    async def release(pause: asyncio.Event) -> None:
        await pause.wait()
        waiting.append(last.pop())
        send()

    releasing = None if upload.pause is None else asyncio.create_task(release(upload.pause))
    try:
        async with asyncio.timeout(_LIMIT_SECONDS):
            while True:
                send()
                if not (data := await reader.read(_READ_BYTES)):
                    return Reply(status, headers, body)
                for event in connection.receive_data(data):
                    if isinstance(event, h2.events.ResponseReceived):
                        fields = [(_text(name), _text(value)) for name, value in event.headers]
                        headers, status = dict(fields), int(dict(fields)[":status"])
                    elif isinstance(event, h2.events.DataReceived):
                        body += event.data
                        connection.acknowledge_received_data(event.flow_controlled_length, stream)
                    elif isinstance(event, h2.events.StreamReset) and not headers:
                        return Reply(0, {}, b"")
                    elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                        return Reply(status, headers, body)
    finally:
        if releasing is not None:
            releasing.cancel()
        writer.transport.abort()


def _send_http2(
    connection: h2.connection.H2Connection, stream: int, waiting: list[bytes], *, ends: bool, trailers: bool
) -> None:
    """Send what the window permits, and remove it from `waiting`; `ends`: nothing comes behind it."""
    while waiting:
        room = min(connection.local_flow_control_window(stream), connection.max_outbound_frame_size)
        if waiting[0] and room <= 0:
            return
        sent, rest = waiting[0][:room], waiting[0][room:]
        waiting[:1] = [rest] if rest else []
        connection.send_data(stream, sent, end_stream=ends and not waiting and not trailers)
        if ends and not waiting and trailers:
            connection.send_headers(stream, [("x-sum", "1")], end_stream=True)


def _text(field: bytes | str) -> str:
    return field if isinstance(field, str) else field.decode("latin-1")
