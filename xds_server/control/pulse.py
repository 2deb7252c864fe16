"""The times at which workers receive each other's counts: soon after reports, at bounded cost."""

from __future__ import annotations

import asyncio
from typing import Final

LEAST_APART_SECONDS: Final = 0.05
_MOST_APART_SECONDS: Final = 0.25
_APART_SECONDS_PER_COUNT: Final = 0.00025
"""To send the count of one endpoint to one worker takes a hundredth of that or less."""


class Pulse:
    """Wakes all streams together after reports, at bounded cost."""

    def __init__(self) -> None:
        self.beats = 0
        self._event = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = float("inf")
        """When the timer fires. uvloop's handle has no `when` once its time is past."""
        self._beat_at = float("-inf")

    def schedule(self, apart_seconds: float) -> None:
        """Beat soon, at least this many seconds after the last beat."""
        loop = asyncio.get_running_loop()
        at = max(loop.time(), self._beat_at + apart_seconds)
        if self._timer is not None:
            if self._fires_at <= at:
                return
            self._timer.cancel()
        self._fires_at = at
        self._timer = loop.call_at(at, self._beat)

    def _beat(self) -> None:
        self._timer = None
        self._beat_at = asyncio.get_running_loop().time()
        self.beats += 1
        self._event.set()
        self._event = asyncio.Event()

    async def beyond(self, beats: int) -> None:
        """Return once there have been more beats than this."""
        while self.beats <= beats:
            await self._event.wait()


def apart_seconds(endpoints: int, workers: int) -> float:
    """Return the least seconds between two sets of counts for these numbers of endpoints and workers."""
    return min(_MOST_APART_SECONDS, max(LEAST_APART_SECONDS, _APART_SECONDS_PER_COUNT * endpoints * workers))
