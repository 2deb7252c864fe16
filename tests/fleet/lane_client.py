"""A client of a lane's connection in words, on the frames of testing/lane_client.py."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from hpack import Decoder, Encoder

from fleet.lane import frames as h2
from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, Ended, HalfClosed, Message, Opened
from fleet.lane.limits import Limits
from testing import lane_client as wire
from testing.lane_client import PATH, REQUEST
from testing.lane_client import grpc_message as prefixed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fleet.lane.connection import Event

__all__ = ["MIB", "PATH", "REQUEST", "Client", "block", "data", "message", "prefixed", "request"]

MIB: Final = 1024 * 1024
CODES: Final = {
    value: name
    for name, value in vars(h2).items()
    if name.endswith(("ERROR", "_CLOSED", "_STREAM", "CANCEL", "CALM"))
    and name not in ("END_STREAM", "RST_STREAM")
}
KINDS: Final = {
    getattr(h2, name): name
    for name in (
        "DATA",
        "HEADERS",
        "RST_STREAM",
        "SETTINGS",
        "PING",
        "GOAWAY",
        "WINDOW_UPDATE",
        "CONTINUATION",
    )
}


def block(*fields: tuple[str, str]) -> bytes:
    """Encode a header block that needs no table."""
    encoder = Encoder()
    encoder.header_table_size = 0
    encoder.encode(())
    return encoder.encode(fields, huffman=sum(map(len, chain(*fields))) < MIB // 64)


def request(stream: int, *more: tuple[str, str], end: bool = False) -> bytes:
    """A call: its HEADERS frame."""
    flags = h2.END_HEADERS | (h2.END_STREAM if end else 0)
    return h2.frame(h2.HEADERS, flags, stream, block(*REQUEST, *more))


def data(stream: int, payload: bytes, *, end: bool = False, padding: int | None = None) -> bytes:
    """A DATA frame."""
    return wire.data(stream, payload, end=end, pad=padding)


def message(stream: int, size: int, *, end: bool = False, frame_bytes: int = 16_384) -> bytes:
    """DATA frames of one message."""
    payload = prefixed(b"m" * size)
    cuts = range(0, len(payload), frame_bytes)
    return b"".join(data(stream, payload[at : at + frame_bytes], end=end and at == cuts[-1]) for at in cuts)


class Client:
    """A connection whose client has sent its preface and acknowledged the server's settings."""

    def __init__(
        self,
        limits: Limits | None = None,
        budget: Budget | None = None,
        *,
        settings: dict[int, int] | None = None,
        window: int = 0,
    ) -> None:
        self.budget = budget or Budget(512 * MIB, 512 * MIB)
        self.connection = Connection(limits or Limits(), self.budget)
        self._decoder = Decoder()
        self.sends(h2.PREFACE + h2.settings(settings or {}) + h2.frame(h2.SETTINGS, h2.ACK, 0))
        # The block that must say that the table is empty.
        self.sends(h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, b"\x20" + block(*REQUEST)))
        if window:
            self.sends(h2.window_update(0, window))
        self.connection.end(1)
        self.reads()

    def sends(self, *parts: bytes) -> list[str]:
        """Let bytes arrive; return the events."""
        return [worded(event) for part in parts for event in self.connection.receive(part)]

    def answer(self, *parts: bytes) -> list[str]:
        """Let bytes arrive; return what the server writes."""
        for part in parts:
            self.connection.receive(part)
        return self.reads()

    def reads(self) -> list[str]:
        """Return the server's frames until it has no more."""
        written = b"".join(iter(self.connection.take, b""))
        return [" ".join(map(str, self._words(*one))) for one in wire.frames(written)]

    def _words(self, kind: int, flags: int, stream: int, payload: bytes) -> Iterator[object]:
        yield KINDS[kind]
        if stream:
            yield stream
        if kind == h2.HEADERS:
            fields = self._decoder.decode(payload, raw=True)
            yield from (f"{bytes(name).decode()}={bytes(value).decode()}" for name, value in fields)
        elif kind == h2.DATA:
            yield len(payload)
        elif kind == h2.RST_STREAM:
            yield CODES[int.from_bytes(payload)]
        elif kind == h2.WINDOW_UPDATE:
            yield int.from_bytes(payload)
        elif kind == h2.GOAWAY:
            yield int.from_bytes(payload[:4])
            yield CODES[int.from_bytes(payload[4:8])]
        elif kind == h2.PING:
            yield payload.decode("latin-1")
        if kind in (h2.HEADERS, h2.DATA) and flags & h2.END_STREAM:
            yield "END"
        if kind in (h2.SETTINGS, h2.PING) and flags & h2.ACK:
            yield "ACK"


def worded(event: Event) -> str:
    """An event in short."""
    match event:
        case Opened():
            return f"opened {event.stream}"
        case Message():
            return f"message {event.stream} {len(event.data)}"
        case HalfClosed():
            return f"half-closed {event.stream}"
        case Ended():
            return f"ended {event.stream} {event.reason}"
