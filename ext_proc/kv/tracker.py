"""One publisher: its messages in order, decoded and applied to the index in small steps."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from ext_proc.kv.events import Event, Fault, Removed, Stored, events_of
from ext_proc.kv.sequence import Restart, Sequencer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ext_proc.kv.blocks import BlockIndex


class Tracker:
    """The known blocks of one data-parallel rank of one endpoint. I/O-free; single-threaded."""

    def __init__(
        self,
        index: BlockIndex,
        owner: str = "",
        *,
        replayable: bool,
        clock: Callable[[], float],
        on_stored: Callable[[list[int]], None] = lambda _: None,
        on_emptied: Callable[[], None] = lambda: None,
        rank: int = 0,
    ) -> None:
        """`owner` is the endpoint's address.

        `on_stored` gets the keys of prefixes that the publisher has newly filled. `on_emptied` is called when
        the publisher has dropped its whole cache.
        """
        self.sequence = Sequencer(replayable=replayable)
        self.counts = self.sequence.counts
        """By name in `KvMetrics.counters`."""
        self.slot = index.open(owner, rank)
        self.connected = False
        self.failure = ""
        """Class and place of the last exception that a message caused, without its words."""
        self._index = index
        self._clock = clock
        self._on_stored = on_stored
        self._on_emptied = on_emptied
        self._trouble = "no attempt yet"
        """Why there is no connection."""
        self._whole = False
        self._partial_cause = ""
        self._message: Iterator[Event | Fault | None] | None = None
        self._applied_at: float | None = None
        """When the newest message came to its turn."""

    @property
    def settled(self) -> bool:
        """Whether everything that the engine has published is applied."""
        return self.connected and self.sequence.settled and self._message is None and not self.sequence.out

    @property
    def whole(self) -> bool:
        """Whether the index has all of the engine's blocks, not only the recent ones."""
        return self._whole and not self.slot.lost

    @property
    def unsettled_by(self) -> str:
        """Why the tracker is not settled, by a name in `STALE_CAUSES` of `ext_proc.kv.view`."""
        if not self.connected:
            return "not_connected"
        if self.sequence.replaying or self.sequence.replay_from is not None:
            return "replay"
        return "waiting" if self.sequence.settled else "no_message"

    @property
    def cause(self) -> str:
        """Why the tracker is not settled, otherwise why it is not whole."""
        if not self.connected:
            return f"not connected: {self._trouble}"
        if self.sequence.replay_from is not None:
            return "a replay waits for its turn"
        if self.sequence.replaying:
            return "a replay is in progress"
        if not self.sequence.settled:
            return "no message has come yet, and none can be replayed"
        if not self.settled:
            return "messages wait to be applied"
        if self.slot.lost:
            return f"the index is full, {self.slot.lost} blocks dropped: see limits.index_blocks_per_endpoint"
        return self._partial_cause

    def status(self) -> dict[str, Any]:
        """Return what operators see of a rank."""
        age = None if self._applied_at is None else round(self._clock() - self._applied_at, 3)
        return {
            "connected": self.connected,
            **({} if self.settled and self.whole else {"cause": self.cause}),
            "last_message_seconds_ago": age,
            "blocks": len(self.slot.blocks),
            "waiting_bytes": self.sequence.waiting_bytes,
            "gaps": self.counts["gap"],
            "restarts": self.counts["restart"],
            "unreadable": self.counts["unreadable"],
            "failed_replays": self.counts["replay_failed"],
            "orphaned_blocks": self.slot.orphans,
            "unknown_removals": self.slot.unknown_removals,
        }

    def connect(self) -> None:
        """Begin on a new connection."""
        self.connected = True
        self.sequence.connect()

    def disconnect(self, trouble: str = "") -> None:
        """End with the connection, or with the attempt. The blocks stay, in case the same engine returns."""
        self.connected = False
        self._trouble = trouble or self._trouble
        self.sequence.disconnect()

    def step(self) -> bool:
        """Do a small part of the work, at most some hundred blocks; False: there is none."""
        swept = self._index.sweep()
        try:
            return self._advance() or swept
        # The message is lost, so the engine's blocks are no longer known. The next message is read.
        except Exception as error:  # noqa: BLE001 - the edge to engines' messages, counted and shown
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.failure = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            self.counts["failed"] += 1
            self._message = None
            self._restart("the reader failed on a message")
            return True

    def _advance(self) -> bool:
        if self._message is None:
            return self._begin()
        try:
            event = next(self._message)
        except StopIteration:
            self._message = None
        else:
            if isinstance(event, Fault):
                self._fault(event)
            elif event is not None:
                self._apply(event)
        return True

    def _begin(self) -> bool:
        """Take the next message, if there is one."""
        if (output := self.sequence.take()) is None:
            return False
        if isinstance(output, Restart):
            self._restart("" if output.whole else "earlier messages are missing, and no replay has them")
            if output.emptied:
                self._on_emptied()
        else:
            self._applied_at = self._clock()
            self._message = events_of(output)
        return True

    def _restart(self, partial_cause: str = "") -> None:
        """Void the blocks; `partial_cause` is why the engine may have others than the following ones."""
        self._index.clear(self.slot)
        self._whole, self._partial_cause = not partial_cause, partial_cause

    def _fault(self, fault: Fault) -> None:
        if fault is Fault.UNKNOWN:
            self.counts["unknown_kind"] += 1
            return
        self.counts["unreadable"] += 1
        # It may have changed any block.
        self._restart("a message was unreadable")

    def _apply(self, event: Event) -> None:
        if isinstance(event, Stored):
            self.counts["stored"] += len(event.hashes)
            if new := self._index.store(self.slot, event):
                self._on_stored(new)
        elif isinstance(event, Removed):
            self.counts["removed"] += len(event.hashes)
            self._index.remove(self.slot, event)
        else:
            self._restart()
            # An old flush from a replay contradicts what others have learnt since.
            if not self.sequence.reads_history:
                self._on_emptied()
