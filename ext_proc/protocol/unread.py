"""Bodies in replies that clients have not taken yet: counted, and bounded.

A client that sends bodies to be echoed, and reads nothing, would make each of its streams keep one message.
gRPC takes no write back, so a stream that makes room ends behind the piece that it is writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ext_proc.protocol.reply import PIECE_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

    Write = Callable[[pb.ProcessingResponse], Awaitable[None]]

UNREAD_BYTES: Final = 128 * 1024 * 1024
"""Of all streams of a worker together; a client that reads takes its replies within milliseconds."""
_COUNTED_BYTES: Final = PIECE_BYTES + 1024
"""Above this replies count; fewer bytes are part of what a stream takes."""


class UnreadError(Exception):
    """A client's replies wait, and there is no more room for them."""


@dataclass(slots=True, eq=False)
class _Waiting:
    """Replies of one stream."""

    replies: list[pb.ProcessingResponse]
    size: int
    cut: bool = False


class Unread:
    """Replies that wait for their clients. Single-threaded."""

    def __init__(self, limit: int = UNREAD_BYTES) -> None:
        self._limit = limit
        self.now = 0
        """In bytes."""
        self._waiting: dict[_Waiting, None] = {}
        """Who has waited longest stands first."""

    @property
    def _over(self) -> bool:
        return self.now > self._limit

    async def write(self, write: Write, replies: list[pb.ProcessingResponse]) -> None:
        """Write replies in order, and drop them.

        Raises:
            UnreadError: there were too many bytes, and these had waited longest, or came in one piece when
                nobody could make room.
        """
        size = sum(reply.ByteSize() for reply in replies)
        if size <= _COUNTED_BYTES:
            for reply in replies:
                await write(reply)
            return
        waiting = _Waiting(replies, size)
        self._waiting[waiting] = None
        self.now += size
        try:
            self._make_room(waiting)
            if len(replies) == 1 and self._over and len(self._waiting) > 1:
                raise UnreadError("there is no room for a reply")
            while replies:
                await write(replies.pop(0))
        finally:
            self._waiting.pop(waiting, None)
            self.now -= waiting.size
        if waiting.cut:
            raise UnreadError("replies were not read, and there was no more room for them")

    def _make_room(self, newest: _Waiting) -> None:
        """Let those go who have waited longest, until the others fit."""
        for each in tuple(self._waiting) if self._over else ():
            if each is not newest and each.replies:
                self.now -= each.size
                each.size, each.cut = 0, True
                each.replies.clear()
                del self._waiting[each]
            if not self._over:
                return
