"""Bodies in replies that clients have not read yet: counted, and bounded.

A client that sends bodies to be echoed, and reads nothing, makes each of its streams keep one message: a
stream is read again only after its replies are written. Above `UNREAD_BYTES` such streams lose their replies.
An Envoy that works reads a reply within milliseconds, so a stream that makes any progress keeps its replies,
however many bytes others leave unread. gRPC takes no write back: a stream ends after its current reply.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ext_proc.protocol.reply import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

UNREAD_BYTES: Final = 64 * 1024 * 1024
"""Limit for all streams of a worker together."""
STALLED_SECONDS: Final = 5.0
"""A stream that reads no reply for this time may lose the others."""
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
    progress_at: float
    """When the last reply was written."""
    dropped: bool = False


class UnreadReplies:
    """Replies that wait for their clients. Single-threaded."""

    def __init__(self, limit_bytes: int = UNREAD_BYTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._waiting: set[_Waiting] = set()
        self._check: asyncio.TimerHandle | None = None
        self.bytes = 0

    async def write(self, call: Call, replies: list[bytes]) -> None:
        """Write serialised replies in order, and remove them from the list.

        Raises:
            UnreadError: the client read too slowly, and the remaining replies are dropped.
        """
        size = sum(map(len, replies))
        if size <= _COUNTED_BYTES:
            for reply in replies:
                await call.write(reply)
            return
        waiting = _Waiting(call.peer(), replies, size, self._clock())
        self._waiting.add(waiting)
        self.bytes += size
        self._check_later()
        try:
            while replies:
                reply = replies.pop(0)
                await call.write(reply)
                waiting.progress_at = self._clock()
                self._subtract(waiting, len(reply))
        finally:
            self._waiting.discard(waiting)
            self._subtract(waiting, waiting.bytes)
        if waiting.dropped:
            raise UnreadError("replies were not read, and took too much memory")

    def drop_stalled(self) -> None:
        """Drop replies of stalled streams until the others fit: those of the worst connection first.

        The worst connection is the one with the most bytes in stalled streams. Of its streams, the one that
        stalls longest is the first.
        """
        self._check = None
        late = self._clock() - STALLED_SECONDS
        stalled = [each for each in self._waiting if each.replies and each.progress_at <= late]
        by_connection: Counter[str] = Counter()
        for each in stalled:
            by_connection[each.connection] += each.bytes
        stalled.sort(key=lambda each: (-by_connection[each.connection], each.connection, each.progress_at))
        for each in stalled:
            if self.bytes <= self._limit_bytes:
                return
            each.dropped = True
            self._subtract(each, sum(map(len, each.replies)))
            each.replies.clear()
        self._check_later()

    def _check_later(self) -> None:
        if self._check is None and self.bytes > self._limit_bytes:
            self._check = asyncio.get_running_loop().call_later(STALLED_SECONDS / 5, self.drop_stalled)

    def _subtract(self, waiting: _Waiting, count: int) -> None:
        waiting.bytes -= count
        self.bytes -= count
