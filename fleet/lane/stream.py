"""The state of one stream of a connection."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Final, Protocol

from fleet.lane.frames import PREFIX
from fleet.lane.headers import INTERNAL, RESOURCE_EXHAUSTED, UNIMPLEMENTED, literal, status
from fleet.lane.limits import STREAM_WINDOW

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Collection


_COMPRESSED: Final = status(UNIMPLEMENTED, "compressed messages are not supported") + literal(
    b"grpc-accept-encoding", b"identity"
)


class RefusedError(Exception):
    """A message is refused: a fault of its stream."""

    def __init__(self, trailers: bytes) -> None:
        super().__init__()
        self.trailers = trailers
        """Their header block."""


class Owner(Protocol):
    """A connection, as the budget needs it."""

    @property
    def open_streams(self) -> Collection[Stream]:
        """The open streams."""

    def admit(self, stream: Stream) -> None:
        """Let the client send what the budget permits of a message."""

    def shed(self, stream: Stream) -> None:
        """End a stream for want of memory."""


class Stream:
    """One open stream: what it may still receive and send."""

    __slots__ = (
        "answered",
        "charged",
        "content_left",
        "credit",
        "half_closed",
        "id",
        "kept",
        "missing",
        "owner",
        "part",
        "paused",
        "permitted",
        "plain",
        "prefix",
        "queue",
        "trailers",
        "unread",
        "used",
        "waiting",
        "window",
    )

    def __init__(self, number: int, owner: Owner, content_bytes: int | None) -> None:
        self.id = number
        self.owner = owner
        self.plain = content_bytes is None
        """The next DATA frame begins a message, and nothing forbids it."""
        self.half_closed = False
        """The client sends no further frames."""
        self.used = False
        """A message has been complete."""
        self.window = STREAM_WINDOW
        """Bytes that the client may send."""
        self.content_left = content_bytes
        """Bytes until the `content-length`; None without one."""
        self.prefix = b""
        """Fewer than five bytes of a message's prefix."""
        self.part: BytesIO | None = None
        """The leading part of a message."""
        self.missing = 0
        """Bytes of that message to come."""
        self.charged = 0
        """Bytes of that message in the budget."""
        self.permitted = STREAM_WINDOW
        """Bytes of a message that may arrive without a further step of the budget."""
        self.waiting = False
        """The stream waits for that step."""
        self.kept = 0
        """Bytes of complete messages that their handler has not finished, in the budget."""
        self.paused = False
        """The handler wants no message now: the window is not renewed."""
        self.credit = 0
        """Bytes that may be sent, less the client's initial window, which may change."""
        self.answered = False
        """Response headers were sent."""
        self.queue: deque[bytes | memoryview] | None = None
        """Prefixes and messages that wait for a window or for `take`."""
        self.unread = 0
        """Bytes of the queue, in the budget."""
        self.trailers: bytes | None = None
        """Their block, once the server has ended the stream and only the queue is left."""

    @property
    def arrived(self) -> int:
        """Bytes of the unfinished message so far, its prefix included; 0 without one."""
        return 0 if self.part is None else self.part.getbuffer().nbytes + PREFIX.size

    @property
    def size(self) -> int:
        """Bytes of the unfinished message, its prefix included; 0 without one."""
        return self.arrived + self.missing

    def read(self, data: bytes, at: int, stop: int, most: int) -> list[bytes]:
        """Return the messages that are complete with `data[at:stop]`, the next piece of the stream's DATA.

        Raises:
            RefusedError: a message is compressed, above `most` bytes, or its prefix is malformed.
        """
        messages = []
        while at < stop:
            if self.part is None:
                behind = at + PREFIX.size - len(self.prefix)
                self.prefix += data[at : min(behind, stop)]
                if behind > stop:
                    break
                at = behind
                size = _size(self.prefix, most)
                self.prefix = b""
                if at + size <= stop:
                    messages.append(data[at : at + size])
                    at += size
                else:
                    self.part = BytesIO()
                    self.missing = size
                continue
            size = min(self.missing, stop - at)
            self.part.write(memoryview(data)[at : at + size])
            at += size
            self.missing -= size
            if not self.missing:
                messages.append(self.part.getvalue())  # Without a copy.
                self.part = None
        self.plain = self.part is None and not self.prefix and self.content_left is None
        return messages


def _size(prefix: bytes, most: int) -> int:
    """Return a message's size from its prefix."""
    compressed: int
    size: int
    compressed, size = PREFIX.unpack(prefix)
    if compressed > 1:
        raise RefusedError(status(INTERNAL, "the prefix of a message is malformed"))
    if compressed:
        raise RefusedError(_COMPRESSED)
    if size > most:
        raise RefusedError(status(RESOURCE_EXHAUSTED, f"a message of {size} bytes; allowed: {most}"))
    return size
