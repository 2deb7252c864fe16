"""What a connection sends: frames for the next write, and replies that wait for a window.

A reply becomes frames at once while windows and the output have room. Otherwise it waits in its stream's
queue, and streams with a queue send one frame each in turn.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from struct import Struct
from typing import TYPE_CHECKING, Final

from fleet.lane import headers
from fleet.lane.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADER_TABLE_SIZE,
    HEADERS,
    LARGEST_WINDOW,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    PREFIX,
    SMALLEST_MAX_FRAME,
    settings,
    window_update,
)
from fleet.lane.limits import CONNECTION_WINDOW, FRAME_BYTES, HEADER_LIST_BYTES, OUTPUT_BYTES, STREAM_WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fleet.lane.budget import Budget
    from fleet.lane.stream import Stream

_MESSAGE: Final = Struct(">IBIBI")
"""The head of a DATA frame with a whole message, and the message's prefix."""
_FIRST: Final = Struct(f">IBI{len(headers.ANSWER)}sIBIBI")
"""The frame of the response headers before that."""
_ANSWER_HEAD: Final = len(headers.ANSWER) << 8 | HEADERS


class Outgoing:
    """The sending half of a connection."""

    __slots__ = (
        "_budget",
        "_bytes",
        "_highest",
        "_shut",
        "_table_update",
        "frame_bytes",
        "frames",
        "initial",
        "ready",
        "sent",
        "window",
    )

    def __init__(self, most_streams: int, budget: Budget) -> None:
        self._budget = budget
        announced = {
            HEADER_TABLE_SIZE: 0,
            MAX_CONCURRENT_STREAMS: most_streams,
            MAX_FRAME_SIZE: FRAME_BYTES,
            MAX_HEADER_LIST_SIZE: HEADER_LIST_BYTES,
        }
        self.frames: list[bytes | memoryview] = [
            settings(announced),
            window_update(0, CONNECTION_WINDOW - STREAM_WINDOW),
        ]
        """To write next."""
        self._bytes = 0
        """Of messages in these."""
        self.window = STREAM_WINDOW
        """Bytes that the connection may send."""
        self.initial = STREAM_WINDOW
        """The client's initial window of a stream."""
        self.frame_bytes = SMALLEST_MAX_FRAME
        """The client's largest frame."""
        self.sent = 0
        """DATA frames so far."""
        self.ready: OrderedDict[Stream, None] = OrderedDict()
        """Streams with a queue and, as far as known, an open window."""
        self._highest = 0
        """No stream's credit is above it."""
        self._shut: OrderedDict[Stream, None] = OrderedDict()
        """Streams with a queue and a shut window."""
        self._table_update = headers.TABLE_SIZE_0

    def message(self, stream: Stream, message: bytes) -> None:
        """Send a message, behind the response headers."""
        size = len(message)
        length = size + 5
        if (
            length <= self.frame_bytes
            and length <= self.window
            and length <= self.initial + stream.credit
            and stream.queue is None
            and self._bytes + length <= OUTPUT_BYTES
        ):
            self._bytes += length
            self.window -= length
            stream.credit -= length
            self.sent += 1
            head = length << 8  # The type of DATA is 0.
            number = stream.id
            if stream.answered:
                self.frames += (_MESSAGE.pack(head, 0, number, 0, size), message)
            elif self._table_update:
                self.answer(stream)
                self.frames += (_MESSAGE.pack(head, 0, number, 0, size), message)
            else:
                stream.answered = True
                self.frames += (
                    _FIRST.pack(_ANSWER_HEAD, END_HEADERS, number, headers.ANSWER, head, 0, number, 0, size),
                    message,
                )
            return
        if not stream.answered:
            self.answer(stream)
        if stream.queue is None:
            stream.queue = deque()
            self.ready[stream] = None
        stream.queue += (PREFIX.pack(0, size), memoryview(message)) if size else (PREFIX.pack(0, 0),)
        self._budget.queue(stream, length)

    def answer(self, stream: Stream, more: bytes = b"") -> None:
        """Send response headers; `more` is a header block."""
        self.block(stream, headers.ANSWER + more, END_HEADERS)
        stream.answered = True

    def block(self, stream: Stream, block: bytes, flags: int = END_HEADERS | END_STREAM) -> None:
        """Send a HEADERS frame."""
        if self._table_update:
            block, self._table_update = self._table_update + block, b""
        self.frames.append(HEAD.pack(len(block) << 8 | HEADERS, flags, stream.id) + block)

    def forget(self, stream: Stream) -> None:
        """Drop a stream's queue."""
        if stream.queue is not None:
            stream.queue = None
            self.ready.pop(stream, None)
            self._shut.pop(stream, None)
            self._budget.unqueue(stream, stream.unread)

    def widen(self, stream: Stream, increment: int) -> bool:
        """Open a stream's window; return False if it overflows."""
        stream.credit += increment
        self._highest = max(self._highest, stream.credit)
        if stream in self._shut:
            del self._shut[stream]
            self.ready[stream] = None
        return self.initial + stream.credit <= LARGEST_WINDOW

    def change_initial(self, value: int, streams: Iterable[Stream]) -> bool:
        """Change the window of all streams; return False if one overflows."""
        if value + self._highest > LARGEST_WINDOW:
            self._highest = max((stream.credit for stream in streams), default=0)
        if value > self.initial:
            self.ready.update(self._shut)
            self._shut.clear()
        self.initial = value
        return value + max(self._highest, 0) <= LARGEST_WINDOW

    def pump(self) -> list[Stream]:
        """Send from the queues; return streams that have sent theirs."""
        done = []
        ready = self.ready
        while ready and self.window > 0 and self._bytes < OUTPUT_BYTES:
            stream = next(iter(ready))
            room = min(self.frame_bytes, self.window, self.initial + stream.credit, stream.unread)
            if room <= 0:
                del ready[stream]
                self._shut[stream] = None
                continue
            self._part(stream, room)
            if stream.unread:
                ready.move_to_end(stream)
                continue
            del ready[stream]
            stream.queue = None
            done.append(stream)
        return done

    def _part(self, stream: Stream, size: int) -> None:
        """Send a frame of `size` bytes from a stream's queue."""
        queue = stream.queue
        assert queue is not None
        self.frames.append(HEAD.pack(size << 8 | DATA, 0, stream.id))
        self._bytes += size
        self.window -= size
        stream.credit -= size
        self.sent += 1
        self._budget.unqueue(stream, size)
        while size:
            piece = queue[0]
            if len(piece) <= size:
                self.frames.append(queue.popleft())
                size -= len(piece)
            else:
                self.frames.append(piece[:size])
                queue[0] = piece[size:]
                size = 0

    def take(self) -> bytes:
        """Return all frames."""
        if not self.frames:
            return b""
        data = b"".join(self.frames)
        self.frames.clear()
        self._bytes = 0
        return data
