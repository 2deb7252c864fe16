"""One publisher: its messages in order, decoded, in the index, a little at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ext_proc.kv.events import Cleared, Event, Removed, Stored, decode_batch
from ext_proc.kv.sequence import Restart, Sequencer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ext_proc.kv.blocks import BlockIndex


@dataclass(frozen=True, slots=True)
class Told:
    """What a publisher has told so far, for metrics."""

    stored_blocks: int
    removed_blocks: int
    unknown_events: int
    malformed_events: int


class Tracker:
    """What one data-parallel rank of one endpoint holds, as it tells. I/O-free; single-threaded."""

    def __init__(
        self,
        index: BlockIndex,
        *,
        replayable: bool,
        clock: Callable[[], float],
        on_stored: Callable[[list[int]], None] | None = None,
    ) -> None:
        """`on_stored` is told the keys of prefixes that the publisher has newly filled."""
        self.sequence = Sequencer(replayable=replayable)
        self.slot = index.open()
        self.connected = False
        self.heard_at: float | None = None
        """When the last message was applied."""
        self._index = index
        self._clock = clock
        self._on_stored = on_stored
        self._whole = False
        self._events: Iterator[Event] = iter(())
        self._busy = False
        self._counts = [0, 0, 0, 0]

    @property
    def settled(self) -> bool:
        """Whether the newest that the engine has told is known."""
        return self.connected and self.sequence.settled and not self._busy and not self.sequence.out

    @property
    def whole(self) -> bool:
        """Whether the index holds all that the engine holds, not only what it told lately."""
        return self._whole and not self.slot.lost

    def connect(self) -> None:
        """Take note of a connection."""
        self.connected = True
        self.sequence.connected()

    def disconnect(self) -> None:
        """Take note of its end. What is known stays, in case it is the same engine that comes back."""
        self.connected = False
        self.sequence.disconnected()

    def close(self) -> None:
        """Give the slot back."""
        self._index.close(self.slot)

    def step(self) -> bool:
        """Do a little of what is to be done, at most some hundred blocks; False: there is nothing."""
        event = next(self._events, None)
        if event is not None:
            self._apply(event)
            return True
        self._busy = False
        if not self.sequence.out:
            return False
        told = self.sequence.out.popleft()
        if isinstance(told, Restart):
            self._restart(whole=told.whole)
            return True
        batch = decode_batch(told)
        self.heard_at = self._clock()
        self._counts[2] += batch.unknown
        self._counts[3] += batch.malformed
        if batch.malformed:
            # Whatever it was, what is held is not known any more.
            self._restart(whole=False)
        self._events, self._busy = iter(batch.events), True
        return True

    def told(self) -> Told:
        """Return counts since the beginning."""
        return Told(*self._counts)

    def _restart(self, *, whole: bool) -> None:
        self._index.clear(self.slot)
        self._whole = whole
        self._events, self._busy = iter(()), False

    def _apply(self, event: Event) -> None:
        if isinstance(event, Stored):
            self._counts[0] += len(event.hashes)
            new = self._index.store(self.slot, event)
            if new and self._on_stored is not None:
                self._on_stored(new)
        elif isinstance(event, Removed):
            self._counts[1] += len(event.hashes)
            self._index.remove(self.slot, event)
        else:
            assert isinstance(event, Cleared)
            self._index.clear(self.slot)
            self._whole = True
