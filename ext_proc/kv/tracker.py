"""One publisher: its messages in order, decoded, in the index, a little at a time."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ext_proc.kv.events import Event, Fault, Removed, Stored, events_of
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
    failures: int
    """Messages of which something raised what we did not foresee."""


class Tracker:
    """What one data-parallel rank of one endpoint holds, as it tells. I/O-free; single-threaded."""

    def __init__(
        self,
        index: BlockIndex,
        owner: str = "",
        *,
        replayable: bool,
        clock: Callable[[], float],
        on_stored: Callable[[list[int]], None] | None = None,
        on_emptied: Callable[[], None] | None = None,
    ) -> None:
        """`on_stored` is told the keys of prefixes that the publisher has newly filled.

        `on_emptied` is called when the publisher has dropped all that it held. `owner` is its endpoint.
        """
        self.sequence = Sequencer(replayable=replayable)
        self.slot = index.open(owner)
        self.connected = False
        self.heard_at: float | None = None
        """When the last message was applied."""
        self._index = index
        self._clock = clock
        self._on_stored = on_stored
        self._on_emptied = on_emptied
        self._whole = False
        self._message: Iterator[Event | Fault | None] | None = None
        self._counts = [0, 0, 0, 0, 0]
        self.failure = ""
        """What was raised last, without its words."""

    @property
    def settled(self) -> bool:
        """Whether the newest that the engine has told is known."""
        return self.connected and self.sequence.settled and self._message is None and not self.sequence.out

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
        swept = self._index.sweep()
        try:
            return self._advance() or swept
        # What a message told is lost then, so what is held is not known any more; the next one is read.
        except Exception as error:  # noqa: BLE001 - the edge to what engines send, counted and told of
            place = traceback.extract_tb(error.__traceback__)[-1]
            self.failure = f"{type(error).__name__} at {place.filename}:{place.lineno}"
            self._counts[4] += 1
            self._message = None
            self._restart(whole=False)
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
        if (told := self.sequence.take()) is None:
            return False
        if isinstance(told, Restart):
            self._restart(whole=told.whole)
            if told.emptied and self._on_emptied is not None:
                self._on_emptied()
        else:
            self.heard_at = self._clock()
            self._message = events_of(told)
        return True

    def told(self) -> Told:
        """Return counts since the beginning."""
        return Told(*self._counts)

    def _restart(self, *, whole: bool) -> None:
        self._index.clear(self.slot)
        self._whole = whole

    def _fault(self, fault: Fault) -> None:
        if fault is Fault.UNKNOWN:
            self._counts[2] += 1
            return
        self._counts[3] += 1
        # Whatever it was, what is held is not known any more.
        self._restart(whole=False)

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
            self._restart(whole=True)
            # A flush of long ago says nothing of what others know by now.
            if self._on_emptied is not None and not self.sequence.recounting:
                self._on_emptied()
