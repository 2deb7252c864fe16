"""Pauses of the whole process, which a service makes for the sake of its memory: at which moments."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LOOK_SECONDS: Final = 1.0
MOST_PAUSE_SECONDS: Final = 0.045
"""Of a pause at any moment; a longer one waits for a quiet time."""
_QUIET_SHARE: Final = 0.1
"""Of one processor."""
QUIET_LOOKS: Final = 3
"""In a row; few requests then notice a longer pause."""
LAST_LOOK: Final = 600
"""A service that is never quiet pauses longer at this look."""


async def looks() -> AsyncIterator[float]:
    """Yield, every `LOOK_SECONDS`, the share of a processor that this process has used meanwhile."""
    while True:
        used = time.process_time()
        await asyncio.sleep(LOOK_SECONDS)
        yield (time.process_time() - used) / LOOK_SECONDS


class Pauses:
    """Decides look by look whether a pause that is due may begin."""

    def __init__(self) -> None:
        self._quiet_looks = self._looks = 0

    def permit(self, seconds: float, processor_share: float) -> bool:
        """Whether a pause of this length may begin: it is short, or the moment is good, or it is late."""
        self._looks += 1
        self._quiet_looks = self._quiet_looks + 1 if processor_share < _QUIET_SHARE else 0
        return seconds <= MOST_PAUSE_SECONDS or self._quiet_looks >= QUIET_LOOKS or self._looks >= LAST_LOOK

    def reset(self) -> None:
        """Begin again, because no pause is due."""
        self._quiet_looks = self._looks = 0
