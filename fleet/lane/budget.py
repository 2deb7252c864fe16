"""Bytes of unfinished messages and unread replies of all connections of a server. Pure, single-threaded.

**Charge**: only what has arrived of a message counts. Its announced length costs its client nothing, so it
takes nothing from others either.

**Steps**: a message may fill its stream's first window without permission. A longer one earns the rest:

    permitted = min(size, max(STREAM_WINDOW, LEAD * arrived))

The connection asks for the next step once half of the last one has arrived. From then on the message is
charged with all that is permitted. The charges of such messages, and complete ones that methods have in
hand, have a limit together. Where a step has no room its stream waits; connections take turns, and the
streams of one are served in their order, those with a step behind them first.

**Progress**: one message at a time, the leader, goes on beyond that limit: the first one that would wait,
if those in hand leave room for it. Its steps are permitted at once, so it becomes whole if its client sends,
and the next one leads. While streams wait, the server calls `relieve` in equal periods. A message that takes
no step, although it may, for two whole periods ends; the leader as well, and what a method has in hand. So
each message of a client that sends becomes whole: at the latest once all connections in front of its own had
their turn. The charges exceed the limit by one message at most.

**Order of ends**: each stream with charges stands in a line by its last progress: a message's beginning, a
step, a message done. Parts in their first window and messages in hand have another limit, far above what
honest clients leave. Above it, streams end from the line's front: those without progress for longest. Those
with less than half of the mean are left, because their ends would free little. Bytes of a message are no
progress by themselves, otherwise single bytes would keep a stream at the end of the line.

Replies that clients do not read have a limit of their own. No time tells a hostile client from an honest one
that stands still. So above it the connection with the most bytes loses streams, the largest first.
"""

from __future__ import annotations

from collections import OrderedDict
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from fleet.lane.limits import STREAM_WINDOW

if TYPE_CHECKING:
    from fleet.lane.stream import Owner, Stream

UNREAD_BYTES: Final = 256 * 1024 * 1024
"""Of replies that clients do not read."""
UNFINISHED_BYTES: Final = 256 * 1024 * 1024
"""4,096 unfinished messages in their first window."""
STREAMS: Final = 131_072
"""Open streams of a server: 256 MiB of ext_proc's."""
LEAD: Final = 8
"""Bytes that a message may have for each one that has arrived. A message of 256 KiB needs one step."""
_PERIODS: Final = 3
"""Calls of `relieve` between a stream's last progress and its end: two whole periods at least. If the process
stands still in one of them, the other one remains."""
_MARGIN: Final = 8
"""Streams end until an eighth of a limit is free, because each search costs time for every stream."""

_unread: Final = attrgetter("unread")


def _step(stream: Stream) -> int:
    """Return the bytes that a stream's message may have."""
    return min(stream.size, max(STREAM_WINDOW, LEAD * stream.arrived))


class Budget:
    """The memory that a server's connections share.

    A connection may change through another one's frames: a stream that waits for memory gets it, or ends.
    Such connections are in `stirred`. After each call of a connection's method the server empties it:
    `receive(b"")` returns their events, `take` their frames.
    """

    __slots__ = (
        "_leader",
        "_line",
        "_message_bytes",
        "_period",
        "_turns",
        "_unfinished_bytes",
        "kept",
        "most_streams",
        "owners",
        "permitted",
        "stirred",
        "streams",
        "unfinished",
        "unread",
        "unread_bytes",
        "waiting",
    )

    def __init__(
        self,
        message_bytes: int,
        unread_bytes: int = UNREAD_BYTES,
        unfinished_bytes: int = UNFINISHED_BYTES,
        streams: int = STREAMS,
    ) -> None:
        """`message_bytes` are for permitted messages, `unfinished_bytes` for parts of others.

        `unread_bytes` are for replies that clients do not read, `streams` the open ones of all connections.
        """
        self._message_bytes = message_bytes
        self.unread_bytes = unread_bytes
        self._unfinished_bytes = unfinished_bytes
        self.most_streams = streams
        self._turns: OrderedDict[Owner, OrderedDict[Stream, None]] = OrderedDict()
        """By connection, in turn, the streams that wait for a step."""
        self._line: OrderedDict[Stream, int] = OrderedDict()
        """All streams with charges: the period of their last progress."""
        self._period = 0
        self._leader: Stream | None = None
        self.owners: set[Owner] = set()
        self.stirred: set[Owner] = set()
        self.streams = 0
        self.waiting = 0
        """Streams that wait for a step. Without 0, the server calls `relieve` in periods."""
        self.permitted = 0
        """Of messages beyond their first window."""
        self.unfinished = 0
        """What has arrived of others."""
        self.kept = 0
        """Of complete messages that methods have in hand."""
        self.unread = 0

    def has_place(self, streams: int) -> bool:
        """Return whether a connection with `streams` open ones may open one more.

        Above the total, those with less than an equal part still may. So there are at most twice as many.
        """
        return self.streams < self.most_streams or streams * len(self.owners) < self.most_streams

    def arrive(self, stream: Stream) -> None:
        """Charge what has arrived of a message that is not whole."""
        if stream.permitted > STREAM_WINDOW:
            return
        size = stream.arrived
        if not stream.charged:
            self._move(stream)
        self.unfinished += size - stream.charged
        stream.charged = size
        self._end_surplus()

    def extend(self, stream: Stream) -> bool:
        """Return whether a message's next step is permitted now; otherwise the stream waits for its turn."""
        if _step(stream) <= stream.permitted:
            return True
        if (not self._turns or stream is self._leader) and self._permit(stream):
            return True
        line = self._turns.setdefault(stream.owner, OrderedDict())
        line[stream] = None
        line.move_to_end(stream, last=stream.permitted <= STREAM_WINDOW)
        stream.waiting = True
        self.waiting += 1
        return False

    def finish(self, stream: Stream) -> None:
        """Release a stream's charge: its message is complete, or the stream ends."""
        if stream.permitted > STREAM_WINDOW:
            self.permitted -= stream.charged
        else:
            self.unfinished -= stream.charged
        stream.charged, stream.permitted = 0, STREAM_WINDOW
        if stream is self._leader:
            self._leader = None
        if stream.waiting:
            self._leave_turn(stream)
        if not stream.kept:
            del self._line[stream]
        self._admit()

    def _permit(self, stream: Stream) -> bool:
        """Permit a message's next step, if it leads or there is room."""
        step = _step(stream)
        more = step - (stream.charged if stream.permitted > STREAM_WINDOW else 0)
        if stream is not self._leader and self.permitted + self.kept + more > self._message_bytes:
            if self._leader is not None or (self.kept and self.kept + step > self._message_bytes):
                return False
            self._leader = stream
        if stream.permitted <= STREAM_WINDOW:
            self.unfinished -= stream.charged
        self.permitted += more
        stream.permitted = stream.charged = step
        self._move(stream)
        return True

    def _admit(self) -> None:
        """Permit steps of those that wait, as far as there is room."""
        while self._turns:
            owner, line = next(iter(self._turns.items()))
            first = next(iter(line))
            if not self._permit(first):
                break
            self._turns.move_to_end(owner)
            self._leave_turn(first)
            self.stirred.add(owner)
            owner.admit(first)

    def _leave_turn(self, stream: Stream) -> None:
        line = self._turns[stream.owner]
        del line[stream]
        if not line:
            del self._turns[stream.owner]
        stream.waiting = False
        self.waiting -= 1

    def _move(self, stream: Stream) -> None:
        """Note a stream's progress."""
        self._line[stream] = self._period
        self._line.move_to_end(stream)

    def relieve(self) -> None:
        """End messages that stand still, as long as streams wait: the end of a period."""
        self._period += bool(self._turns)
        for stream in tuple(self._line):
            if not self._turns:
                return
            still = self._period - self._line[stream] >= _PERIODS
            may_go_on = not (stream.waiting or stream.paused)
            if still and may_go_on and (stream.kept or stream.permitted > STREAM_WINDOW):
                self._end(stream)

    def _end_surplus(self) -> None:
        """End streams from the line's front, if there is too much of unfinished messages."""
        total = self.unfinished + self.kept
        if total <= self._unfinished_bytes:
            return
        enough = self._unfinished_bytes - self._unfinished_bytes // _MARGIN
        least = total // (2 * len(self._line))
        for stream in tuple(self._line):
            if self.unfinished + self.kept <= enough:
                return
            parts = stream.charged if stream.permitted <= STREAM_WINDOW else 0
            if stream.kept + parts >= max(least, 1):
                self._end(stream)

    def _end(self, stream: Stream) -> None:
        self.stirred.add(stream.owner)
        stream.owner.shed(stream)

    def keep(self, stream: Stream, size: int) -> None:
        """Count a complete message that its handler has not finished."""
        stream.kept += size
        self.kept += size
        self._move(stream)
        self._end_surplus()

    def free(self, stream: Stream, size: int) -> None:
        """Count a message that its handler has finished."""
        stream.kept -= size
        self.kept -= size
        if stream.kept or stream.charged:
            self._move(stream)
        else:
            del self._line[stream]
        self._admit()

    def queue(self, stream: Stream, size: int) -> None:
        """Count replies that wait in a stream's queue."""
        stream.unread += size
        self.unread += size
        if self.unread > self.unread_bytes:
            self._end_unread(self.unread_bytes - self.unread_bytes // _MARGIN)

    def unqueue(self, stream: Stream, size: int) -> None:
        """Count replies that leave a stream's queue."""
        stream.unread -= size
        self.unread -= size

    def _end_unread(self, enough: int) -> None:
        """End streams of the connections with the most unread bytes, until no more than `enough` is left."""
        # Sorted once: a search for each of thousands of connections would block the loop.
        totals = {owner: sum(map(_unread, owner.open_streams)) for owner in self.owners}
        for worst in sorted(totals, key=totals.__getitem__, reverse=True):
            for stream in sorted(worst.open_streams, key=_unread, reverse=True):
                if self.unread <= enough:
                    return
                if not stream.unread:
                    break
                self._end(stream)
