"""Python's garbage collector in a service: full collections wait for a quiet time.

A full collection looks at every object that may be part of a cycle, without interruption: it takes 0.17 to
0.35 s with 2,000 open discovery streams, whose objects are mostly grpcio's and asyncio's. It finds next to
nothing there, because the services avoid cycles and the collections of young objects, which take
milliseconds, find the others. Python would start one whenever a quarter of the objects is new, so that peers
choose the moment.
"""

from __future__ import annotations

import gc
import logging
import sys
from typing import Final

from fleet.service.pauses import Pauses, looks

logger = logging.getLogger(__name__)

_THRESHOLDS: Final = (2000, 10, (1 << 31) - 1)
"""New objects, and collections of the youngest, that cause collections of the younger two generations; the
last one lets Python start no full collection. Python's own 700 would cost a flood of small messages more."""
LEAST_YOUNG: Final = 20
"""Collections of the second generation before a full one is due: 400,000 objects were new."""
_GROWTH: Final = 0.1
"""Share of new blocks of memory from which a short full collection is worth its time."""
MOST_GROWTH: Final = 1.0
"""The same from which a full collection of any length begins at any moment. This bounds the garbage."""
_SECONDS_PER_BLOCK: Final = 1e-6
"""Of a full collection, by blocks that were allocated since the start: measured on a busy host, where
340,000 took 0.35 s (0.17 s of processor time)."""


def exempt_from_collection() -> None:
    """Exempt all present objects, those of a started service, and let Python start no full collection."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


async def collect_at_quiet_times() -> None:
    """Make the full collections that Python no longer starts, until cancelled."""
    garbage = Garbage(sys.getallocatedblocks())
    async for share in looks():
        if garbage.calls_for_collection(sys.getallocatedblocks(), gc.get_count()[2], share):
            collected = gc.collect()
            logger.debug("a full collection of garbage has freed %d objects", collected)
            garbage.collected(sys.getallocatedblocks())


class Garbage:
    """An estimate of the garbage by the allocated blocks of memory, and of what collecting it takes."""

    def __init__(self, blocks: int) -> None:
        """`blocks` are allocated and exempt from collections."""
        self._exempt = self._least = blocks
        self._pauses = Pauses()

    def calls_for_collection(self, blocks: int, young: int, processor_share: float) -> bool:
        """Whether a full collection is due, and the moment is good or the garbage may be much.

        `young` collections of the second generation have been made since the last full one.
        `processor_share` is the part of a processor that this process used since the last look. Without
        Python's own allocator (PYTHONMALLOC=malloc) blocks are always 0: then only a quiet time is good.
        """
        self._least = min(self._least, blocks)
        if young < LEAST_YOUNG:
            self._pauses.reset()
            return False
        growth = blocks / max(self._least, 1) - 1
        seconds = (blocks - self._exempt) * _SECONDS_PER_BLOCK if growth > _GROWTH else float("inf")
        return self._pauses.permit(seconds, processor_share) or growth >= MOST_GROWTH

    def collected(self, blocks: int) -> None:
        """Begin again with the blocks that a full collection has left."""
        self._least = blocks
