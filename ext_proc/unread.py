"""Bodies in replies that clients have not read yet: counted, and bounded far above what honest clients leave.

A client that sends bodies to be echoed, and reads nothing, makes each of its streams keep one message: a
stream is read again only after its replies are written. No time tells such a client from an honest one: an
Envoy or this worker may stand still for seconds, and a client with a small window shows progress seldom. A
reply that is lost in the middle of a body fails its request. So replies are dropped only above a limit that a
standstill of honest clients does not reach, and only on the connection with the most unread bytes, the
largest stream first. The limit is `UNREAD_BYTES`, in addition to
`limits.held_body_bytes`, because bodies that wait for their picks may leave all at once. gRPC takes no write
back: a stream ends after its current reply.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ext_proc.protocol.reply import PIECE_BYTES
from fleet.lane.budget import UNREAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable

_COUNTED_BYTES: Final = PIECE_BYTES + 1024
"""Larger replies count; smaller ones are part of the memory that each stream takes."""


class UnreadError(Exception):
    """A client did not read its replies, and they took too much memory."""


class Call(Protocol):
    """A gRPC call, as the server has it."""

    def write(self, message: bytes) -> Awaitable[None]:
        """Return once gRPC has sent the reply, as far as the client has room for it."""

    def peer(self) -> str:
        """Return the connection's other end."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """Replies of one stream."""

    connection: str
    replies: list[bytes]
    """Without the reply that is being written."""
    bytes: int
    """Of these."""
    dropped: bool = False


class UnreadReplies:
    """Replies that wait for their clients. Single-threaded."""

    def __init__(self, unread_bytes: int = UNREAD_BYTES) -> None:
        self.unread_bytes = unread_bytes
        """The limit."""
        self._waiting: set[_Waiting] = set()
        self.bytes = 0
        """Without the reply that each stream is writing."""

    async def write(self, call: Call, replies: list[bytes]) -> None:
        """Write serialised replies in order, and remove them from the list.

        Raises:
            UnreadError: too much is unread, and the remaining replies are dropped.
        """
        size = sum(map(len, replies))
        if size <= _COUNTED_BYTES:
            for reply in replies:
                await call.write(reply)
            return
        waiting = _Waiting(call.peer(), replies, size)
        self._waiting.add(waiting)
        self.bytes += size
        try:
            while replies:
                reply = replies.pop(0)
                self._subtract(waiting, len(reply))
                self._drop()
                await call.write(reply)
        finally:
            self._waiting.discard(waiting)
            self._subtract(waiting, waiting.bytes)
        if waiting.dropped:
            raise UnreadError("replies were not read, and took too much memory")

    def _drop(self) -> None:
        """Drop replies of the connection with the most unread bytes until the rest fits."""
        if self.bytes <= self.unread_bytes:
            return
        by_connection: Counter[str] = Counter()
        for each in self._waiting:
            by_connection[each.connection] += each.bytes
        worst = max(by_connection, key=by_connection.__getitem__)
        streams = [each for each in self._waiting if each.connection == worst and each.replies]
        for each in sorted(streams, key=lambda stream: stream.bytes, reverse=True):
            if self.bytes <= self.unread_bytes:
                return
            each.dropped = True
            each.replies.clear()
            self._subtract(each, each.bytes)

    def _subtract(self, waiting: _Waiting, count: int) -> None:
        waiting.bytes -= count
        self.bytes -= count
