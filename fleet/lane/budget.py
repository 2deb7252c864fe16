"""Bytes of unfinished messages and unread replies of all connections of a server. Pure, single-threaded.

A message that does not fit into its stream's window reserves its whole length. The connection with the
fewest reserved bytes is next, and of its messages the first one, so that no client keeps others waiting by
many messages. What is reserved can finish, so there is no deadlock. Parts of smaller messages, and of those
that wait for their reservation, have a limit far above what honest clients leave, and so have replies that
clients do not read. A method may count its messages until it has finished them; these take room from both. No
time tells a hostile client from an honest one that stands still. So above a limit the connection with the
most bytes loses streams, the largest first.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from fleet.lane.limits import STREAM_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.lane.stream import Owner, Stream

UNREAD_BYTES: Final = 256 * 1024 * 1024
"""Of replies that clients do not read."""
SPARE_BYTES: Final = 256 * 1024 * 1024
"""4,096 unfinished messages without a reservation."""
_MARGIN: Final = 8
"""Streams end until an eighth of a limit is free, because each search costs time for every stream."""

_unread: Final[Callable[[Stream], int]] = attrgetter("unread")


def _unfinished(stream: Stream) -> int:
    return stream.kept + (0 if stream.reserved else stream.charged)


def _reserved(stream: Stream) -> int:
    return stream.kept + (stream.charged if stream.reserved else 0)


class Budget:
    """The memory that a server's connections share.

    A connection may change through another one's frames: a stream that waits for memory gets it, or ends.
    Such connections are in `stirred`. After each call of a connection's method the server empties it:
    `receive(b"")` returns their events, `take` their frames.
    """

    __slots__ = (
        "_lines",
        "_message_bytes",
        "_reserved_by",
        "_spare_bytes",
        "_tickets",
        "_waiting",
        "kept",
        "owners",
        "reserved",
        "stirred",
        "unfinished",
        "unread",
        "unread_bytes",
    )

    def __init__(
        self, message_bytes: int, unread_bytes: int = UNREAD_BYTES, spare_bytes: int = SPARE_BYTES
    ) -> None:
        """`message_bytes` are for reservations, `spare_bytes` for parts of messages without one.

        `unread_bytes` are for replies that clients do not read.
        """
        self._message_bytes = message_bytes
        self.unread_bytes = unread_bytes
        self._spare_bytes = spare_bytes
        self._lines: dict[Owner, OrderedDict[Stream, int]] = {}
        """By connection, the streams that wait for a reservation, with its size."""
        self._reserved_by: Counter[Owner] = Counter()
        self._waiting: OrderedDict[Stream, int] = OrderedDict()
        """All of these, with a number for each wait; the first has waited for longest."""
        self._tickets = 0
        self.owners: set[Owner] = set()
        self.stirred: set[Owner] = set()
        self.reserved = 0
        self.unfinished = 0
        """Without reservations."""
        self.kept = 0
        """Of complete messages that methods have in hand."""
        self.unread = 0

    @property
    def waiting(self) -> int:
        """Return the number of streams that wait for a reservation. Without 0, the server needs a timer."""
        return len(self._waiting)

    @property
    def longest_wait(self) -> int | None:
        """Return the number of the wait that has lasted for longest: each wait has its own."""
        return next(iter(self._waiting.values()), None)

    def relieve(self) -> None:
        """End the largest reservation, or messages in hand, of the connection with the most of both.

        The server calls it when a stream has waited for long: a client that reserves and does not send, or
        does not read what a method answers, would block it for ever.
        """
        self._shed(_reserved, 1)

    def begin(self, stream: Stream, size: int, *, fits: bool) -> None:
        """Charge a message that has arrived in part; `fits` if the stream's window has its rest."""
        if fits:
            stream.charged = size
        elif self._room(size) and self._is_next(stream.owner):
            self._reserve(stream, size)
            return
        else:
            self._lines.setdefault(stream.owner, OrderedDict())[stream] = size
            self._tickets += 1
            self._waiting[stream] = self._tickets
            stream.waiting = True
            stream.charged = STREAM_WINDOW
        self.unfinished += stream.charged
        self._spare()

    def finish(self, stream: Stream) -> None:
        """Release a stream's charge: its message is complete, or the stream ends."""
        size, stream.charged = stream.charged, 0
        if stream.reserved:
            stream.reserved = False
            self.reserved -= size
            self._reserved_by[stream.owner] -= size
            if not self._reserved_by[stream.owner]:
                del self._reserved_by[stream.owner]
        else:
            self.unfinished -= size
            if not stream.waiting:
                return
            self._leave_line(stream)
        self._admit()

    def _admit(self) -> None:
        """Reserve for those in line, as far as there is room."""
        while self._lines:
            line = self._lines[min(self._lines, key=self._reserved_by.__getitem__)]
            first, size = next(iter(line.items()))
            if not self._room(size):
                break
            self._leave_line(first)
            self.unfinished -= first.charged
            self.stirred.add(first.owner)
            self._reserve(first, size)

    def _is_next(self, owner: Owner) -> bool:
        """Return whether a connection has fewer reserved bytes than each one that waits."""
        mine = self._reserved_by[owner]
        return all(mine < self._reserved_by[other] for other in self._lines)

    def _reserve(self, stream: Stream, size: int) -> None:
        stream.charged, stream.reserved = size, True
        self.reserved += size
        self._reserved_by[stream.owner] += size
        stream.owner.admit(stream)

    def _leave_line(self, stream: Stream) -> None:
        line = self._lines[stream.owner]
        del line[stream]
        if not line:
            del self._lines[stream.owner]
        del self._waiting[stream]
        stream.waiting = False

    def keep(self, stream: Stream, size: int) -> None:
        """Count a complete message that its handler has not finished."""
        stream.kept += size
        self.kept += size
        self._spare()

    def free(self, stream: Stream, size: int) -> None:
        """Count a message that its handler has finished."""
        stream.kept -= size
        self.kept -= size
        self._admit()

    def queue(self, stream: Stream, size: int) -> None:
        """Count replies that wait in a stream's queue."""
        stream.unread += size
        self.unread += size
        if self.unread > self.unread_bytes:
            self._shed(_unread, self.unread - self.unread_bytes + self.unread_bytes // _MARGIN)

    def unqueue(self, stream: Stream, size: int) -> None:
        """Count replies that leave a stream's queue."""
        stream.unread -= size
        self.unread -= size

    def _room(self, size: int) -> bool:
        used = self.reserved + self.kept
        return not used or used + size <= self._message_bytes

    def _spare(self) -> None:
        surplus = self.unfinished + self.kept - self._spare_bytes
        if surplus > 0:
            self._shed(_unfinished, surplus + self._spare_bytes // _MARGIN)

    def _shed(self, weight: Callable[[Stream], int], surplus: int) -> None:
        """End streams of the connection with the most bytes, until `surplus` bytes are free."""
        # Sorted once: a search for each of thousands of connections would block the loop.
        totals = {owner: sum(map(weight, owner.open_streams)) for owner in self.owners}
        for worst in sorted(totals, key=totals.__getitem__, reverse=True):
            for stream in sorted(worst.open_streams, key=weight, reverse=True):
                size = weight(stream)
                if surplus <= 0 or not size:
                    break
                surplus -= size
                worst.shed(stream)
                self.stirred.add(worst)
            if surplus <= 0:
                return
