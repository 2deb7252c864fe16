"""A client of one connection of the lane, without a transport: for tests and benches.

Frames are written by hand, as no library sends wrong ones. The numbers are RFC 9113's, written down here
again, so that a wrong one in the lane shows. Each step of the connection is checked against what holds for
any bytes: see `Watched`.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple

import hpack

from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, Ended, Event, HalfClosed, Message, Opened
from fleet.lane.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE = 0, 1, 2, 3, 4, 5
PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT = 0, 1, 2, 3, 4
STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 5, 6, 7, 8, 9
ENHANCE_YOUR_CALM = 11
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5
MOST_WINDOW: Final = (1 << 31) - 1
FIRST_WINDOW: Final = 65_535

PATH: Final = "/test.Echo/Call"
REQUEST: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "lane"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)


class Frame(NamedTuple):
    """One frame of the server."""

    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """The error code of a RST_STREAM or GOAWAY."""
        start = 4 if self.kind == GOAWAY else 0
        return int.from_bytes(self.payload[start : start + 4], "big")


def frame(
    kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"", length: int | None = None
) -> bytes:
    """Return a frame; `length` is what its head says, where that is not the payload's."""
    size = len(payload) if length is None else length
    return size.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def frames(data: bytes) -> list[Frame]:
    """Return the frames that `data` holds, which must be whole ones."""
    read, at = [], 0
    while at < len(data):
        stop = at + 9 + int.from_bytes(data[at : at + 3], "big")
        assert at + 9 <= len(data) >= stop, "a frame is cut off"
        number = int.from_bytes(data[at + 5 : at + 9], "big")
        read.append(Frame(data[at + 3], data[at + 4], number, data[at + 9 : stop]))
        at = stop
    return read


def as_bytes(one: Frame) -> bytes:
    """Return a frame as it came."""
    return frame(*one)


def settings(*pairs: tuple[int, int]) -> bytes:
    """Return a SETTINGS frame with the pairs in order."""
    return frame(SETTINGS, payload=b"".join(n.to_bytes(2, "big") + v.to_bytes(4, "big") for n, v in pairs))


def data(stream: int, content: bytes = b"", *, end: bool = False, pad: int | None = None) -> bytes:
    """Return a DATA frame; `pad` is the count of bytes of its padding."""
    if pad is None:
        return frame(DATA, END_STREAM * end, stream, content)
    return frame(DATA, PADDED | END_STREAM * end, stream, bytes([pad]) + content + bytes(pad))


def reset(stream: int, code: int = CANCEL) -> bytes:
    """Return a RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def window_update(stream: int, by: int) -> bytes:
    """Return a WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, by.to_bytes(4, "big"))


def ping(content: bytes = b"areyouup", *, ack: bool = False) -> bytes:
    """Return a PING frame."""
    return frame(PING, ACK * ack, 0, content)


def grpc_message(content: bytes, flag: int = 0) -> bytes:
    """Return a message with gRPC's prefix."""
    return bytes([flag]) + len(content).to_bytes(4, "big") + content


@cache
def block(fields: tuple[tuple[str, str], ...] = REQUEST) -> bytes:
    """Return a header block that takes the dynamic table away, and so depends on no other block."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode(fields)


def headers(
    stream: int,
    fields: tuple[tuple[str, str], ...] = REQUEST,
    *,
    flags: int = END_HEADERS,
    end: bool = False,
    before: bytes = b"",
    after: bytes = b"",
) -> bytes:
    """Return a HEADERS frame; `before` and `after` stand around the header block."""
    return frame(HEADERS, flags | END_STREAM * end, stream, before + block(fields) + after)


def literal(name: bytes, value: bytes, form: int = 0x00) -> bytes:
    """Return a header with a literal name, without Huffman coding (RFC 7541, section 6.2)."""
    assert len(name) < 127 > len(value)
    return bytes([form, len(name)]) + name + bytes([len(value)]) + value


class BrokenRuleError(AssertionError):
    """What the bytes of a client made a connection do that it must not."""


_ORDINARY_FRAME: Final = 16_384
_ROOM_BYTES: Final = 4096
_ANSWER_FACTOR: Final = 30
"""Bytes of answers for a byte of the client, at most: 13 of RST_STREAM for a HEADERS frame of 10."""
_MESSAGE_BYTES: Final = 600
"""Around each message that is sent, at most: its frames and, if it is the first one, its headers."""


class Watched:
    """A connection whose every step is checked.

    Raises `BrokenRuleError` where a stream's events are not one `Opened`, messages, at most one `HalfClosed`,
    and an `Ended` or the server's end; where frames break the states of RFC 9113, section 5.1; and where
    answers are far more than what was received and sent.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._calls: dict[int, str] = {}
        """Open calls: `open` or `half`."""
        self._shed: set[int] = set()
        """Calls that the server has ended, perhaps after they were shed for want of memory."""
        self._last = 0
        self._sides: dict[int, str] = {}
        """What the server has sent on a stream last: `headers`, `trailers` or `reset`."""
        self._greeted = self._over = False
        self._room = float(_ROOM_BYTES)

    @property
    def open(self) -> list[int]:
        """The calls that the server may answer."""
        return list(self._calls)

    def receive(self, data: bytes) -> list[Event]:
        """Receive, and check the events."""
        self._room += _ANSWER_FACTOR * len(data)
        events = self.connection.receive(data)
        self._check(events)
        return events

    def lost(self) -> list[Event]:
        """Lose the transport, and check that each open call ends."""
        events = self.connection.lost()
        self._check(events)
        _demand(not self._calls and all(isinstance(event, Ended) for event in events), "lost: calls go on")
        _demand(self.connection.streams == 0, "lost: streams are left")
        return events

    def send(self, stream: int, *messages: bytes) -> None:
        """Send messages."""
        self._room += sum(map(len, messages)) * 1.01 + _MESSAGE_BYTES * (1 + len(messages))
        self.connection.send(stream, *messages)

    def end(self, stream: int, status: int = 0, text: str = "") -> None:
        """End a call."""
        self._room += _MESSAGE_BYTES + 3 * len(text)
        if self._calls.pop(stream, None):
            self._shed.add(stream)
        self.connection.end(stream, status, text)

    def reset(self, stream: int, code: int) -> None:
        """Reset a call."""
        self._calls.pop(stream, None)
        self.connection.reset(stream, code)

    def take(self) -> list[Frame]:
        """Take all that the connection has to write, and check it."""
        taken = b""
        while data := self.connection.take():
            _demand(not self._over, "frames after the last GOAWAY")
            taken += data
        self._room -= len(taken)
        _demand(self._room > 0, "too many bytes of answers")
        got = frames(taken)
        for one in got:
            self._check_frame(one)
        self._over = self.connection.closing
        return got

    def _check(self, events: list[Event]) -> None:
        for event in events:
            stream = event.stream
            state = self._calls.get(stream)
            if isinstance(event, Opened):
                _demand(state is None and stream > self._last, f"opened again: {stream}")
                self._last = stream
                self._calls[stream] = "open"
            elif isinstance(event, Message):
                _demand(state == "open", f"a message in a call that is {state}")
            elif isinstance(event, HalfClosed):
                _demand(state == "open", f"half-closed, but {state}")
                self._calls[stream] = "half"
            elif event.reason == "memory" and stream in self._shed:
                self._shed.discard(stream)
            else:
                _demand(state is not None, f"{event} of a call that is {state}")
                del self._calls[stream]

    def _check_frame(self, one: Frame) -> None:
        kind, flags, stream, payload = one
        if not self._greeted:
            _demand(kind == SETTINGS and not flags & ACK, f"the first frame is {one}")
            self._greeted = True
        if kind in {SETTINGS, PING, GOAWAY}:
            _demand(stream == 0, f"on a stream: {one}")
        elif kind == WINDOW_UPDATE:
            _demand(0 < int.from_bytes(payload, "big") <= MOST_WINDOW, f"wrong increment: {one}")
            _demand(self._sides.get(stream) != "reset", f"after a reset: {one}")
        else:
            _demand(kind in {DATA, HEADERS, RST_STREAM} and stream % 2 == 1, f"wrong frame: {one}")
            self._check_side(one)

    def _check_side(self, one: Frame) -> None:
        side = self._sides.get(one.stream)
        if one.kind == RST_STREAM:
            _demand(side != "reset", f"a second reset: {one}")
            self._sides[one.stream] = "reset"
            return
        _demand(side == "headers" or (side is None and one.kind == HEADERS), f"after {side}: {one}")
        if one.kind == HEADERS:
            _demand(side is None or one.flags & END_STREAM != 0, f"headers again: {one}")
            _demand(one.flags & END_HEADERS != 0, f"headers in parts: {one}")
        self._sides[one.stream] = "trailers" if one.flags & END_STREAM else "headers"


def _demand(condition: bool, broken: str) -> None:  # noqa: FBT001 - as of an assertion
    if not condition:
        raise BrokenRuleError(broken)


_CODE: Final = (type, ModuleType, FunctionType, BuiltinFunctionType)


def deep_bytes(root: object) -> int:
    """Return the bytes of all objects that one has, without code."""
    met: set[int] = set()
    pending, size = [root], 0
    while pending:
        each = pending.pop()
        if id(each) not in met and not isinstance(each, _CODE):
            met.add(id(each))
            size += sys.getsizeof(each)
            pending += gc.get_referents(each)
    return size


class Client:
    """Sends frames to a connection, and has what came back.

    It acknowledges the server's SETTINGS at once.
    """

    def __init__(
        self, limits: Limits | None = None, budget: Budget | None = None, *, bytewise: bool = False
    ) -> None:
        """`bytewise`: the connection receives each byte by itself, otherwise each frame."""
        self.limits = limits or Limits(streams=50)
        self.budget = budget or Budget(message_bytes=1 << 28, unread_bytes=1 << 28)
        self.connection = Connection(self.limits, self.budget)
        self.watched = Watched(self.connection)
        self.bytewise = bytewise
        self.events: list[Event] = []
        self.replies: list[Frame] = []
        self.goaway: int | None = None
        """The code of the last GOAWAY."""
        self.answers = True
        """Each call that the client has half-closed is answered by its messages, and ends."""
        self._messages: dict[int, list[bytes]] = {}
        self._decoder = hpack.Decoder()

    def handshake(self, *pairs: tuple[int, int]) -> None:
        """Exchange the first SETTINGS."""
        self.send(PREFACE, settings(*pairs))
        assert self.replies[0].kind == SETTINGS
        assert not self.replies[0].flags & ACK
        self.send(frame(SETTINGS, ACK))
        self.replies.clear()

    def send(self, *parts: bytes) -> list[Frame]:
        """Send, and return the frames that come back."""
        pieces: Sequence[bytes] = parts
        if self.bytewise:
            pieces = [bytes([byte]) for byte in b"".join(parts)]
        got: list[Frame] = []
        for piece in pieces:
            if self.connection.closing:
                break  # A transport that is closed gives no more.
            self._take(self.watched.receive(piece))
            got += self.taken()
        return got

    def _take(self, events: list[Event]) -> None:
        self.events += events
        for event in events:
            if isinstance(event, Message):
                self._messages.setdefault(event.stream, []).append(bytes(event.data))
            elif isinstance(event, Ended):
                self._messages.pop(event.stream, None)
            elif isinstance(event, HalfClosed) and self.answers:
                self.answer(event.stream)

    def answer(self, stream: int) -> None:
        """Let the server answer a call with its messages, and end it."""
        self.watched.send(stream, *self._messages.pop(stream, []))
        self.watched.end(stream)

    def taken(self) -> list[Frame]:
        """Return what the server writes now."""
        got = self.watched.take()
        for one in got:
            if one.kind == GOAWAY:
                self.goaway = one.code
        self.replies += got
        return got

    def forget(self) -> None:
        """Forget what came back, so that a long run takes no memory of the client's."""
        self.events.clear()
        self.replies.clear()

    def lose(self) -> None:
        """Take the transport away."""
        self._take(self.watched.lost())

    def of(self, kind: int, stream: int | None = None) -> list[Frame]:
        """Return the replies of one kind."""
        return [one for one in self.replies if one.kind == kind and stream in (None, one.stream)]

    def fields(self, reply: Frame) -> dict[str, str]:
        """Return the headers of a HEADERS frame."""
        assert reply.kind == HEADERS
        assert reply.flags & END_HEADERS
        return {str(name): str(value) for name, value in self._decoder.decode(reply.payload)}

    def status(self, stream: int) -> str | None:
        """Return the grpc-status with which the server has ended a call."""
        last = self.of(HEADERS, stream)[-1]
        return self.fields(last).get("grpc-status") if last.flags & END_STREAM else None

    def opened(self) -> list[int]:
        """Return the streams whose calls have begun."""
        return [event.stream for event in self.events if isinstance(event, Opened)]

    def messages(self, stream: int) -> list[bytes]:
        """Return the messages that arrived whole."""
        return [bytes(one.data) for one in self.events if isinstance(one, Message) and one.stream == stream]

    def ended(self) -> list[int]:
        """Return the streams that the client or the connection's end has taken away."""
        return [event.stream for event in self.events if isinstance(event, Ended)]
