"""One HTTP/2 connection of a gRPC server (RFC 9113), without I/O and without a clock.

**Connection**: preface -> first SETTINGS -> open -> closing. A client's fault raises `_Fault` inside
`receive`, which ends all streams, sends GOAWAY and sets `closing`. A drain is GOAWAY with the highest
stream number and a PING; its answer, or a second `go_away`, brings GOAWAY with the last stream. Later
streams are then ignored, and the end of the last one sets `closing`. Inside a header block only
CONTINUATION may follow.

**Stream**: idle -> open -> half-closed by the client, or ended by the server -> closed. Streams above
`_last` and even ones are idle, those in `_streams` are open or half-closed, all others are closed. Frames
of a client cause, apart from their own faults:

| frame | idle | open | half-closed | closed |
| --- | --- | --- | --- | --- |
| HEADERS | opens the stream | END_STREAM: trailers; otherwise PROTOCOL_ERROR | STREAM_CLOSED | GOAWAY |
| DATA | GOAWAY | messages | STREAM_CLOSED | STREAM_CLOSED |
| RST_STREAM | GOAWAY | the end | the end | nothing |
| WINDOW_UPDATE | GOAWAY | a wider window | a wider window | nothing |
| PRIORITY | nothing | nothing | nothing | nothing |

An error's name stands for RST_STREAM with it. Frames of a stream that the server reset are ignored, as long
as `_recent` has the stream. If the server ends a stream that the client has not half-closed, RST_STREAM
with NO_ERROR follows the trailers. A client's fault in gRPC ends its stream with a gRPC status.

**Messages**: DATA of a stream is a run of messages with a prefix each. A message in one frame is one slice.
Other messages grow in `Stream.part`, and the budget has what arrives of them. A stream's window begins at
`STREAM_WINDOW`. A larger message gets it in steps that the budget permits, and with the last one a whole
window behind it. Otherwise the window is renewed below `_LOW_WINDOW`, so that the next prefix always fits.
The connection's window is large, and renewed in large batches.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.lane import frames, headers, limits
from fleet.lane.frames import (
    ACK,
    COMPRESSION_ERROR,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    GOAWAY,
    HEAD_BYTES,
    HEADERS,
    LARGEST_STREAM,
    LARGEST_WINDOW,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PREFIX,
    PRIORITY,
    PRIORITY_FIELDS,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_UPDATE,
)
from fleet.lane.headers import BlockError, BlockReader, LargeListError, MalformedError
from fleet.lane.limits import STREAM_WINDOW
from fleet.lane.outgoing import Outgoing
from fleet.lane.stream import RefusedError, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from fleet.lane.budget import Budget
    from fleet.lane.limits import Limits

_LOW_WINDOW: Final = 32_768
_HEAD: Final = frames.HEAD.unpack_from
_PREFIX: Final = PREFIX.unpack_from
_PREFIX_BYTES: Final = PREFIX.size
_PRIORITY_BYTES: Final = 5
_NUMBER_BYTES: Final = 4
_PING_BYTES: Final = 8
_GOAWAY_BYTES: Final = 8
_LARGEST_HEAD: Final = limits.FRAME_BYTES << 8 | 0xFF
_SETTINGS_ACK: Final = frames.frame(SETTINGS, ACK, 0)
_DRAIN_PING: Final = b"draining"
_MOST_BUFFERED: Final = limits.BLOCK_BYTES + 261
"""Largest frame that is buffered before it is read: a header block with padding and priority fields."""
_LARGE_BLOCK: Final = bytes(limits.BLOCK_BYTES + 1)
"""In the place of one that is too large."""


class Opened(NamedTuple):
    """A client calls a method."""

    stream: int
    path: str
    timeout_seconds: float | None
    """Of `grpc-timeout`, from now on."""
    headers: tuple[tuple[bytes, bytes], ...]
    """Without pseudo-headers, in order, names in lower case."""


class Message(NamedTuple):
    """A message is complete."""

    stream: int
    data: bytes


class HalfClosed(NamedTuple):
    """The client sends no further message."""

    stream: int


class Ended(NamedTuple):
    """The stream is gone before `end` or `reset`; nothing can be sent."""

    stream: int
    reason: str
    """`reset`: by the client; `lost`: the connection ended; `protocol`: the client breaks it;
    `memory`: see `Budget`."""


Event = Opened | Message | HalfClosed | Ended


class _Fault(Exception):  # noqa: N818 - the client's, not an error of ours
    """A client's fault that ends the connection."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Connection:
    """A connection: the client's bytes become events, calls become bytes for the client.

    After each method other than `take` there may be bytes to write. The server calls `take` once for all
    calls of one pass, and again while it returns bytes, but not while the transport's buffer is full.
    """

    __slots__ = (
        "_block",
        "_budget",
        "_counts",
        "_drain",
        "_events",
        "_frame",
        "_last",
        "_opened",
        "_outgoing",
        "_own",
        "_reader",
        "_received",
        "_recent",
        "_rest",
        "_streams",
        "closing",
        "error",
        "sent",
        "started",
    )

    def __init__(self, own: Limits, budget: Budget) -> None:
        self.closing = False
        """Once `take` is written, close the transport."""
        self.started = False
        """The preface and the head of the first SETTINGS have arrived."""
        self.error = ""
        """Cause of the connection's end for the log, without a client's text; "" without a fault."""
        self.sent: list[int] = []
        """Streams whose waiting messages `take` has returned; the server empties it."""
        self._own = own
        self._budget = budget
        self._outgoing = Outgoing(own.streams, budget)
        self._reader = BlockReader()
        self._streams: dict[int, Stream] = {}
        self._recent: OrderedDict[int, bool] = OrderedDict()
        """Of the newest streams that the server reset, or that the client closed: whether it was a reset."""
        self._last = 0
        """The client's highest stream so far."""
        self._events: list[Event] = []
        self._rest = b""
        """The beginning of a frame."""
        self._block: tuple[int, int, list[bytes]] | None = None
        """Stream, flags and parts of a header block before its END_HEADERS."""
        self._frame: tuple[Stream | None, int, int, int] | None = None
        """Of a DATA or ignored frame that has begun: stream, bytes to come, padding behind them, flags."""
        self._received = 0
        """Bytes of DATA since the last update of the connection's window."""
        self._opened = 0
        """Streams so far."""
        self._counts: dict[str, int] = {}
        """Frames and streams without use, by kind."""
        self._drain = 0
        """Frames of GOAWAY so far."""
        budget.owners.add(self)

    @property
    def streams(self) -> int:
        """Return the number of open streams."""
        return len(self._streams)

    @property
    def open_streams(self) -> Collection[Stream]:
        """Return the open streams, for the budget."""
        return self._streams.values()

    def receive(self, data: bytes) -> list[Event]:
        """Return what the client's next bytes cause, in their order; a client's fault raises nothing."""
        if not self.closing and data:
            if self._rest:
                data = self._rest + data
                self._rest = b""
            try:
                self._walk(data)
            except _Fault as fault:
                self._fail(fault.code, str(fault))
            if self._received >= limits.WINDOW_BATCH:
                self._outgoing.frames.append(frames.window_update(0, self._received))
                self._received = 0
        events = self._events
        if events:
            self._events = []
        return events

    def send(self, stream: int, *messages: bytes) -> None:
        """Send serialised messages; nothing happens on a stream that has ended."""
        state = self._streams.get(stream)
        if state is not None and state.trailers is None:
            for message in messages:
                if stream not in self._streams:
                    return  # The budget has ended it.
                self._outgoing.message(state, message)

    def answer(self, stream: int, fields: Iterable[tuple[bytes, bytes]]) -> None:
        """Send response headers with more fields now; nothing happens once there were some."""
        state = self._streams.get(stream)
        if state is not None and not state.answered:
            self._outgoing.answer(state, b"".join(headers.literal(name, value) for name, value in fields))

    def unread(self, stream: int) -> int:
        """Return the bytes of a stream that wait for the client."""
        state = self._streams.get(stream)
        return 0 if state is None else state.unread

    def keep(self, stream: int, size: int) -> None:
        """Count a message that its handler has not finished: the stream's window is not renewed meanwhile."""
        state = self._streams.get(stream)
        if state is not None:
            self._budget.keep(state, size)

    def free(self, stream: int, size: int) -> None:
        """Count a message that its handler has finished."""
        state = self._streams.get(stream)
        if state is not None:
            self._budget.free(state, size)
            self._renew_low(state)

    def pause(self, stream: int) -> None:
        """Let a stream's client send no more than its window, until `resume`."""
        state = self._streams.get(stream)
        if state is not None:
            state.paused = True

    def resume(self, stream: int) -> None:
        """Let a stream's client go on."""
        state = self._streams.get(stream)
        if state is not None and state.paused:
            state.paused = False
            self._renew_low(state)

    def end(self, stream: int, status: int = 0, text: str = "") -> None:
        """End a stream with a gRPC status, behind its messages. No event follows."""
        state = self._streams.get(stream)
        if state is None or state.trailers is not None:
            return
        block = headers.status(status, text) if status or text else headers.OK
        if state.queue is None:
            self._close(state, block)
        else:
            state.trailers = block
            self._ignore_messages(state)

    def reset(self, stream: int, code: int) -> None:
        """End a stream at once by an error code of HTTP/2. No event follows."""
        state = self._streams.get(stream)
        if state is not None:
            self._reset(state, code)

    def go_away(self) -> None:
        """Ask the client for no further streams; `closing` follows once the open ones have ended.

        The first call permits the streams that are on their way; the client's answer, or a second call, ends
        that.
        """
        if self.closing or self._drain > 1:
            return
        self._drain += 1
        send = self._outgoing.frames.append
        if self._drain == 1:
            send(frames.go_away(LARGEST_STREAM, NO_ERROR))
            send(frames.frame(PING, 0, 0, _DRAIN_PING))
        else:
            send(frames.go_away(self._last, NO_ERROR))
            self.closing = not self._streams

    def take(self) -> bytes:
        """Return the bytes to write now, at most about `OUTPUT_BYTES`; b"" if there are none."""
        outgoing = self._outgoing
        if outgoing.ready:
            for stream in outgoing.pump():
                if stream.trailers is None:
                    self.sent.append(stream.id)
                else:
                    self._close(stream, stream.trailers)
        if "answers" in self._counts:
            del self._counts["answers"]
        return outgoing.take()

    def lost(self) -> list[Event]:
        """The transport is gone: return the end of each open stream."""
        self._end_all("lost")
        self._outgoing.take()
        events, self._events = self._events, []
        return events

    # For the budget.

    def admit(self, stream: Stream) -> None:
        """Let the client send what the budget permits of a message."""
        self._renew(stream)

    def shed(self, stream: Stream) -> None:
        """End a stream for want of memory."""
        block = headers.status(headers.RESOURCE_EXHAUSTED, "this connection's messages take too much memory")
        self._abort(stream, block, "memory")

    # Frames.

    def _walk(self, data: bytes) -> None:
        """Read all complete frames, and of the last one what can be read."""
        at, end = self._resume(data), len(data)
        streams, add = self._streams, self._events.append
        most = self._own.message_bytes
        while end - at >= HEAD_BYTES:
            head, flags, number = _HEAD(data, at)
            if head > _LARGEST_HEAD:
                raise _Fault(FRAME_SIZE_ERROR, "a frame above the announced size")
            number &= LARGEST_STREAM
            kind, length = head & 0xFF, head >> 8
            start = at + HEAD_BYTES
            stop = start + length
            if kind == DATA and self._block is None:
                stream = streams.get(number)
                size = length - _PREFIX_BYTES
                if (
                    stream is not None
                    and stream.plain
                    and 0 <= size <= most
                    and stop <= end
                    and length <= stream.window
                    and not flags & PADDED
                    and _PREFIX(data, start) == (0, size)
                ):
                    stream.window -= length
                    stream.used = True
                    self._received += length
                    add(Message(number, data[stop - size : stop]))
                    if flags & END_STREAM:
                        self._half_close(stream)
                    elif stream.window < _LOW_WINDOW:
                        self._renew(stream)
                else:
                    stop = self._data(flags, number, length, data, start)
            elif kind == HEADERS and flags == END_HEADERS and stop <= end and self._fresh(number, length):
                self._request(number, flags, data[start:stop])
            else:
                if self._block is not None and kind != CONTINUATION:
                    raise _Fault(PROTOCOL_ERROR, "another frame inside a header block")
                if stop <= end:
                    _READERS.get(kind, _ignore)(self, flags, number, data[start:stop])
                else:
                    stop = self._incomplete(kind, flags, number, length, data, start)
            if stop < start:
                break  # The rest is unread.
            at = stop
        if at < end:
            self._rest = data[at:]

    def _resume(self, data: bytes) -> int:
        """Read the preface, or go on in a frame that has begun; return the position behind it."""
        if self._frame is not None:
            return self._continue(data, 0)
        if self.started:
            return 0
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise _Fault(PROTOCOL_ERROR, "no preface of HTTP/2 (the client speaks TLS or HTTP/1.1?)")
        if len(data) < len(PREFACE) + HEAD_BYTES:
            self._rest = data
            return len(data)
        head, flags, _ = _HEAD(data, len(PREFACE))
        if head & 0xFF != SETTINGS or flags & ACK:
            raise _Fault(PROTOCOL_ERROR, "no SETTINGS behind the preface")
        self.started = True
        return len(PREFACE)

    def _incomplete(self, kind: int, flags: int, number: int, length: int, data: bytes, start: int) -> int:
        """Begin a frame whose end is missing; return where its unread bytes begin.

        The bytes of a header block that is too large are not kept.
        """
        if kind == GOAWAY:
            _check_goaway(number, length)
        if kind == GOAWAY or kind not in _READERS:
            self._frame = None, length, 0, 0
            return self._continue(data, start)
        if length <= _MOST_BUFFERED:
            return start - HEAD_BYTES
        if kind not in (HEADERS, CONTINUATION):
            raise _Fault(ENHANCE_YOUR_CALM, "a frame that is too large for its type")
        _READERS[kind](self, flags & ~(PADDED | PRIORITY_FIELDS), number, _LARGE_BLOCK)
        self._frame = None, length, 0, 0
        return self._continue(data, start)

    # DATA.

    def _data(self, flags: int, number: int, length: int, data: bytes, start: int) -> int:
        """Begin a DATA frame, and read what has arrived; return the position behind that."""
        padding = 0
        if flags & PADDED:
            if length and start == len(data):
                return start - HEAD_BYTES
            padding = data[start] + 1 if length else 1
            if padding > length:
                raise _Fault(PROTOCOL_ERROR, "padding longer than its frame")
            start += 1
        self._received += length
        if length == padding and not flags & END_STREAM:
            self._count("empty DATA frames", limits.EMPTY_FRAMES + self._opened)
        stream = self._streams.get(number)
        if stream is None:
            self._closed_data(number)
        elif stream.half_closed:
            self._fault(stream, STREAM_CLOSED)
            stream = None
        elif length > stream.window:
            self._fault(stream, FLOW_CONTROL_ERROR)
            stream = None
        else:
            stream.window -= padding
        self._frame = stream, length - padding, max(padding - 1, 0), flags
        return self._continue(data, start)

    def _closed_data(self, number: int) -> None:
        """Answer DATA of a stream that is not open."""
        if self._is_idle(number):
            raise _Fault(PROTOCOL_ERROR, "DATA of an idle stream")
        self._count_late()
        if number <= self._last and not self._recent.get(number):
            self._refuse(number, STREAM_CLOSED)  # Once, by RFC 9113, 5.4.2.

    def _continue(self, data: bytes, at: int) -> int:
        """Read the frame that has begun; return the position behind what has arrived of it."""
        assert self._frame is not None
        stream, left, padding, flags = self._frame
        if stream is not None and self._streams.get(stream.id) is not stream:
            stream = None  # It has ended since.
        stop = min(at + left, len(data))
        if stream is not None and at < stop and not self._feed(stream, data, at, stop):
            stream = None
        left -= stop - at
        at = min(stop + padding, len(data))
        padding -= at - stop
        if left or padding:
            self._frame = stream, left, padding, flags
            return at
        self._frame = None
        if stream is not None:
            if flags & END_STREAM:
                self._half_close(stream)
            else:
                self._renew_low(stream)
        return at

    def _feed(self, stream: Stream, data: bytes, at: int, stop: int) -> bool:
        """Read messages from DATA; return whether the stream is still open."""
        stream.window -= stop - at
        if stream.trailers is not None:
            return True
        if stream.content_left is not None:
            stream.content_left -= stop - at
            if stream.content_left < 0:
                self._fault(stream, PROTOCOL_ERROR)
                return False
        try:
            messages = stream.read(data, at, stop, self._own.message_bytes)
        except RefusedError as refused:
            self._abort(stream, refused.trailers)
            return False
        self._events += [Message(stream.id, message) for message in messages]
        if messages:
            stream.used = True
            if stream.charged:
                self._budget.finish(stream)
        if stream.part is not None:
            self._budget.arrive(stream)
        return stream.id in self._streams

    def _renew_low(self, stream: Stream) -> None:
        """Renew a window in which the rest of a message, or the next one's prefix, may not fit."""
        if stream.window < (stream.missing or _LOW_WINDOW):
            self._renew(stream)

    def _renew(self, stream: Stream) -> None:
        """Open a stream's window: for its message's next step, or for the rest and the next messages."""
        if stream.trailers is not None or stream.waiting or stream.paused or stream.kept:
            return
        size = stream.size
        asks = size > stream.permitted and stream.window <= stream.permitted // 2
        if asks and not self._budget.extend(stream):
            return
        if size > stream.permitted:
            increment = stream.permitted - stream.arrived - stream.window
        else:
            increment = STREAM_WINDOW - stream.window + (stream.missing if size > STREAM_WINDOW else 0)
        if increment > 0:
            self._outgoing.frames.append(frames.window_update(stream.id, increment))
            stream.window += increment

    def _half_close(self, stream: Stream) -> None:
        """The client has sent its last frame of a stream."""
        stream.half_closed = True
        stream.plain = False
        self._remember(stream.id, reset=False)
        if stream.trailers is not None:
            return
        if stream.content_left:
            self._fault(stream, PROTOCOL_ERROR)
        elif stream.part is not None or stream.prefix:
            self._abort(stream, headers.status(headers.INTERNAL, "the stream ended within a message"))
        else:
            self._events.append(HalfClosed(stream.id))

    # HEADERS and CONTINUATION.

    def _fresh(self, number: int, length: int) -> bool:
        """Return whether a whole block can open a stream."""
        return self._block is None and number not in self._streams and length <= limits.BLOCK_BYTES

    def _headers(self, flags: int, number: int, payload: bytes) -> None:
        padding, at = 0, 0
        if flags & PADDED:
            padding, at = payload[0] if payload else 0, 1
        if flags & PRIORITY_FIELDS:
            at += _PRIORITY_BYTES
        if at + padding > len(payload):
            short = FRAME_SIZE_ERROR if at > len(payload) else PROTOCOL_ERROR
            raise _Fault(short, "HEADERS shorter than its fields and padding")
        block = payload[at : len(payload) - padding]
        if not number:
            raise _Fault(PROTOCOL_ERROR, "HEADERS without a stream")
        if flags & END_HEADERS:
            self._whole_block(number, flags, block)
        else:
            self._block = number, flags, [block[: limits.BLOCK_BYTES + 1]]

    def _continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise _Fault(PROTOCOL_ERROR, "CONTINUATION without its HEADERS")
        _, first_flags, parts = self._block
        parts.append(payload[: limits.BLOCK_BYTES + 1 - sum(map(len, parts))])
        if len(parts) > limits.CONTINUATIONS:
            raise _Fault(ENHANCE_YOUR_CALM, "a header block in too many frames")
        if flags & END_HEADERS:
            self._block = None
            self._whole_block(number, first_flags, b"".join(parts))

    def _whole_block(self, number: int, flags: int, block: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            self._request(number, flags, block)
            return
        try:
            headers.check(self._reader.fields(block))
        except BlockError as error:
            raise _Fault(COMPRESSION_ERROR, str(error)) from None
        except (MalformedError, LargeListError):
            flags = 0
        if stream.half_closed:
            self._fault(stream, STREAM_CLOSED)
        elif flags & END_STREAM:
            self._half_close(stream)
        else:
            self._fault(stream, PROTOCOL_ERROR)

    def _request(self, number: int, flags: int, block: bytes) -> None:
        """Open a stream."""
        try:
            request = self._reader.request(block)
        except BlockError as error:
            raise _Fault(COMPRESSION_ERROR, str(error)) from None
        except MalformedError:
            request = None
        if number <= self._last or not number & 1:
            self._closed_headers(number)
            return
        if self._drain > 1:
            return
        self._last = number
        self._opened += 1
        if request is None:
            self._refuse(number, PROTOCOL_ERROR)
            self._count_fruitless()
            return
        if len(self._streams) >= self._own.streams or not self._budget.has_place(len(self._streams)):
            self._refuse(number, REFUSED_STREAM)
            return
        stream = self._streams[number] = Stream(number, self, request.content_bytes)
        self._budget.streams += 1
        if request.refusal:
            stream.half_closed = bool(flags & END_STREAM)
            stream.answered = True
            self._close(stream, request.refusal)
            self._count_fruitless()
            return
        self._events.append(Opened(number, request.path, request.timeout_seconds, request.headers))
        if flags & END_STREAM:
            self._half_close(stream)

    def _closed_headers(self, number: int) -> None:
        """Answer HEADERS that can open no stream."""
        reset = self._recent.get(number)
        if reset is None:
            raise _Fault(PROTOCOL_ERROR, "HEADERS with a stream that is even or too low")
        if not reset:
            raise _Fault(STREAM_CLOSED, "HEADERS behind the end of their stream")
        self._count_late()

    # Other frames.

    def _priority(self, _flags: int, number: int, payload: bytes) -> None:
        if not number:
            raise _Fault(PROTOCOL_ERROR, "PRIORITY without a stream")
        self._count("PRIORITY frames", limits.PRIORITY_FRAMES + 100 * self._opened)
        if len(payload) != _PRIORITY_BYTES:
            raise _Fault(FRAME_SIZE_ERROR, "PRIORITY of another size")

    def _rst_stream(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _NUMBER_BYTES:
            raise _Fault(FRAME_SIZE_ERROR, "RST_STREAM of another size")
        stream = self._streams.get(number)
        if stream is None:
            if self._is_idle(number):
                raise _Fault(PROTOCOL_ERROR, "RST_STREAM of an idle stream")
            return
        self._forget(stream)
        if stream.trailers is None:
            self._events.append(Ended(number, "reset"))
            if not stream.answered and not stream.used:
                self._count_fruitless()

    def _settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise _Fault(PROTOCOL_ERROR, "SETTINGS with a stream")
        if flags & ACK:
            if payload:
                raise _Fault(FRAME_SIZE_ERROR, "SETTINGS with ACK and a payload")
            self._reader.forbid_table()
            return
        if len(payload) % frames.SETTING.size:
            raise _Fault(FRAME_SIZE_ERROR, "SETTINGS of another size")
        if len(payload) > limits.SETTINGS_BYTES:
            raise _Fault(ENHANCE_YOUR_CALM, "too many settings in a frame")
        self._count("SETTINGS frames", limits.SETTINGS_FRAMES + self._outgoing.sent // 100)
        for name, value in frames.SETTING.iter_unpack(payload):
            self._setting(name, value)
        self._outgoing.frames.append(_SETTINGS_ACK)
        self._count("answers", limits.ANSWERS)

    def _setting(self, name: int, value: int) -> None:
        outgoing = self._outgoing
        if name == frames.ENABLE_PUSH and value > 1:
            raise _Fault(PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
        if name == frames.MAX_FRAME_SIZE:
            if not frames.SMALLEST_MAX_FRAME <= value <= frames.LARGEST_MAX_FRAME:
                raise _Fault(PROTOCOL_ERROR, "MAX_FRAME_SIZE outside its range")
            outgoing.frame_bytes = min(value, limits.OUTPUT_BYTES)
        if name == frames.INITIAL_WINDOW_SIZE and not outgoing.change_initial(value, self._streams.values()):
            raise _Fault(FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE above the largest window")

    def _push_promise(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise _Fault(PROTOCOL_ERROR, "PUSH_PROMISE by a client")

    def _ping(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise _Fault(PROTOCOL_ERROR, "PING with a stream")
        if len(payload) != _PING_BYTES:
            raise _Fault(FRAME_SIZE_ERROR, "PING of another size")
        if not flags & ACK:
            self._outgoing.frames.append(frames.frame(PING, ACK, 0, payload))
            self._count("answers", limits.ANSWERS)
        elif self._drain == 1 and payload == _DRAIN_PING:
            self.go_away()

    def _goaway(self, _flags: int, number: int, payload: bytes) -> None:
        _check_goaway(number, len(payload))

    def _window_update(self, _flags: int, number: int, payload: bytes) -> None:
        if len(payload) != _NUMBER_BYTES:
            raise _Fault(FRAME_SIZE_ERROR, "WINDOW_UPDATE of another size")
        outgoing = self._outgoing
        self._count("WINDOW_UPDATE frames", limits.WINDOW_FRAMES + 4 * self._opened + 20 * outgoing.sent)
        increment = int.from_bytes(payload) & LARGEST_WINDOW
        stream = self._streams.get(number)
        if not number:
            if not increment:
                raise _Fault(PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            outgoing.window += increment
            if outgoing.window > LARGEST_WINDOW:
                raise _Fault(FLOW_CONTROL_ERROR, "a window above the largest one")
        elif stream is None:
            if self._is_idle(number):
                raise _Fault(PROTOCOL_ERROR, "WINDOW_UPDATE of an idle stream")
        elif not increment:
            self._fault(stream, PROTOCOL_ERROR)
        elif not outgoing.widen(stream, increment):
            self._fault(stream, FLOW_CONTROL_ERROR)

    # Ends.

    def _is_idle(self, number: int) -> bool:
        """Return whether a frame's stream was never open. Behind the last GOAWAY new streams are ignored."""
        return not number & 1 or (number > self._last and self._drain < 2)

    def _count(self, name: str, most: int) -> None:
        """Count a frame that brings nothing."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count > most:
            raise _Fault(ENHANCE_YOUR_CALM, f"too many {name}")

    def _count_late(self) -> None:
        self._count("frames of closed streams", limits.LATE_FRAMES + 20 * self._opened)

    def _count_fruitless(self) -> None:
        self._count("streams without use", limits.FRUITLESS_STREAMS + 10 * self._outgoing.sent)

    def _fault(self, stream: Stream, code: int) -> None:
        """Reset a stream for its client's fault."""
        self._reset(stream, code)
        if stream.trailers is None:
            self._events.append(Ended(stream.id, "protocol"))
        if not stream.answered:
            self._count_fruitless()

    def _abort(self, stream: Stream, block: bytes, reason: str = "protocol") -> None:
        """End a stream by trailers, without its queue."""
        self._outgoing.forget(stream)
        self._close(stream, block)
        if stream.trailers is None:
            self._events.append(Ended(stream.id, reason))

    def _close(self, stream: Stream, block: bytes) -> None:
        """Send trailers; the stream ends."""
        self._outgoing.block(stream, block if stream.answered else headers.ANSWER + block)
        if stream.half_closed:
            self._forget(stream)
        else:
            self._reset(stream, NO_ERROR)

    def _reset(self, stream: Stream, code: int) -> None:
        self._refuse(stream.id, code)
        self._forget(stream)

    def _refuse(self, number: int, code: int) -> None:
        self._outgoing.frames.append(frames.reset(number, code))
        self._remember(number, reset=True)

    def _remember(self, number: int, *, reset: bool) -> None:
        """Keep for late frames whether the server reset a stream, or the client closed its half."""
        recent = self._recent
        recent[number] = reset
        if len(recent) > limits.RECENT_STREAMS:
            recent.popitem(last=False)

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.id]
        self._budget.streams -= 1
        stream.part = None
        if stream.charged:
            self._budget.finish(stream)
        if stream.kept:
            self._budget.free(stream, stream.kept)
        if stream.queue is not None:
            self._outgoing.forget(stream)
        if self._drain > 1 and not self._streams:
            self.closing = True

    def _ignore_messages(self, stream: Stream) -> None:
        """Drop what arrived of a message: the server has ended the stream."""
        stream.plain = False
        stream.part = None
        stream.missing = 0
        if stream.charged:
            self._budget.finish(stream)

    def _fail(self, code: int, text: str) -> None:
        self.error = text
        self._end_all("protocol")
        self._outgoing.frames.append(frames.go_away(self._last, code))

    def _end_all(self, reason: str) -> None:
        self.closing = True
        self._budget.owners.discard(self)
        for stream in tuple(self._streams.values()):
            self._forget(stream)
            if stream.trailers is None:
                self._events.append(Ended(stream.id, reason))


def _ignore(_connection: Connection, _flags: int, _number: int, _payload: bytes) -> None:
    """Read a frame of an unknown type."""


def _check_goaway(number: int, length: int) -> None:
    """Check a GOAWAY's head: nothing else of it matters."""
    if number:
        raise _Fault(PROTOCOL_ERROR, "GOAWAY with a stream")
    if length < _GOAWAY_BYTES:
        raise _Fault(FRAME_SIZE_ERROR, "GOAWAY that is too short")


_READERS: Final[dict[int, Callable[[Connection, int, int, bytes], None]]] = {
    RST_STREAM: Connection._rst_stream,
    HEADERS: Connection._headers,
    WINDOW_UPDATE: Connection._window_update,
    SETTINGS: Connection._settings,
    PING: Connection._ping,
    CONTINUATION: Connection._continuation,
    PRIORITY: Connection._priority,
    GOAWAY: Connection._goaway,
    PUSH_PROMISE: Connection._push_promise,
}
"""By type; DATA has a way of its own."""
