"""HTTP/2 clients that send as fast as they may and take nothing: each stream's window is zero.

The connection is read all the time, so that the server can go on to grant them room for more. The doors are
`ext_proc.address` and `xds.address`.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import h2.connection
import h2.events
import h2.exceptions
from h2.settings import SettingCodes

from bench.abuse import discovery, ext_proc_messages
from bench.abuse.sending import send
from fleet.envoy_api.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import TYPE_CLUSTER
from fleet.settings.address import split_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.abuse.sending import Sent

_CONNECTIONS: Final = 8
_READ_BYTES: Final = 65_536
_PIECE_BYTES: Final = 262_144
_PAUSE_SECONDS: Final = 0.01


def _bodies(piece_bytes: int) -> Callable[[], Iterator[bytes]]:
    """Return a request for an echoed body in endless pieces of `piece_bytes`."""

    def messages() -> Iterator[bytes]:
        first = pb.ProcessingRequest()
        first.protocol_config.request_body_mode = processing_mode_pb2.ProcessingMode.FULL_DUPLEX_STREAMED
        first.request_headers.SetInParent()
        yield first.SerializeToString()
        body = pb.ProcessingRequest()
        body.request_body.body = bytes(piece_bytes)
        piece = body.SerializeToString()
        while True:
            yield piece

    return messages


def _headers() -> Iterator[bytes]:
    """Ask for a reply with each message."""
    message = pb.ProcessingRequest()
    message.request_headers.SetInParent()
    while True:
        yield message.SerializeToString()


def _clusters() -> Iterator[bytes]:
    """Ask for what there is, as clients of one name, again and again."""
    while True:
        yield discovery.ask(type_url=TYPE_CLUSTER)


@dataclass(frozen=True, slots=True)
class Kind:
    """The bytes that each stream sends."""

    path: str
    messages: Callable[[], Iterator[bytes]]
    streams: int


EXT_PROC: Final = {
    "bodies": Kind(ext_proc_messages.METHOD, _bodies(1 << 20), 256),
    "large_bodies": Kind(ext_proc_messages.METHOD, _bodies(8 << 20), 64),
    "headers": Kind(ext_proc_messages.METHOD, _headers, 2000),
}
XDS: Final = {"clusters": Kind(discovery.METHOD, _clusters, 2000)}
KINDS: Final = {**EXT_PROC, **XDS}


@dataclass(slots=True)
class _Stream:
    messages: Iterator[bytes]
    rest: memoryview = field(default_factory=lambda: memoryview(b""))

    def next_piece(self, most: int) -> memoryview:
        """Return the next bytes, at most `most`."""
        if not self.rest:
            message = next(self.messages)
            self.rest = memoryview(struct.pack("!BI", 0, len(message)) + message)
        piece, self.rest = self.rest[:most], self.rest[most:]
        return piece


class _Client:
    """One connection with some streams of a kind; a stream that is ended is followed by another one."""

    def __init__(self, kind: Kind, streams: int, sent: Sent) -> None:
        self._kind = kind
        self._sent = sent
        self._h2 = h2.connection.H2Connection()
        self._streams: dict[int, _Stream] = {}
        self._most_streams = streams

    async def run(self, address: str) -> None:
        """Connect, and send until enough is sent or the server closes the connection."""
        host, port = split_host_port(address)
        self._h2.local_settings[SettingCodes.INITIAL_WINDOW_SIZE] = 0
        self._h2.local_settings.acknowledge()
        self._h2.initiate_connection()
        reader, writer = await asyncio.open_connection(host, port)
        reading = asyncio.create_task(self._read(reader))
        try:
            while not self._sent.full and not reading.done():
                self._fill()
                writer.write(self._h2.data_to_send())
                await writer.drain()
                await asyncio.sleep(0 if self._h2.outbound_flow_control_window else _PAUSE_SECONDS)
            await reading
        finally:
            reading.cancel()
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_READ_BYTES):
            for event in self._h2.receive_data(data):
                if isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                    self._streams.pop(event.stream_id or 0, None)

    def _fill(self) -> None:
        while len(self._streams) < self._most_streams:
            number = self._h2.get_next_available_stream_id()
            self._h2.send_headers(
                number,
                [
                    (":method", "POST"),
                    (":scheme", "http"),
                    (":path", self._kind.path),
                    (":authority", "warmroute"),
                    ("content-type", "application/grpc"),
                    ("te", "trailers"),
                ],
            )
            self._streams[number] = _Stream(self._kind.messages())
        for number, stream in tuple(self._streams.items()):
            with contextlib.suppress(h2.exceptions.StreamClosedError):
                room = min(
                    self._h2.local_flow_control_window(number), self._h2.max_outbound_frame_size, _PIECE_BYTES
                )
                if room > 0:
                    piece = bytes(stream.next_piece(room))
                    self._h2.send_data(number, piece)
                    self._sent.add(piece)


async def attack(address: str, kind: str, *, most_bytes: int = 256 << 20, seconds: float = 10.0) -> int:
    """Open the streams of one of `KINDS` and send in each as much as the server accepts."""
    what = KINDS[kind]

    async def connect(sent: Sent) -> None:
        await _Client(what, what.streams // _CONNECTIONS, sent).run(address)

    return await send(connect, connections=_CONNECTIONS, most_bytes=most_bytes, seconds=seconds)
