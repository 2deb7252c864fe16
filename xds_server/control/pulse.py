"""The times at which workers receive each other's counts: soon after reports, at bounded cost."""

from __future__ import annotations

import asyncio
from typing import Final

from fleet.token_bucket import TokenBucket

LEAST_APART_SECONDS: Final = 0.02
"""In the mean: a worker takes a part of a millisecond for an update."""
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
        self._bucket = TokenBucket()
        self._apart_seconds = 0.0

    def schedule(self, apart_seconds: float) -> None:
        """Beat soon: at once, or with beats this many seconds apart in the mean, see `TokenBucket`."""
        loop = asyncio.get_running_loop()
        at = self._bucket.at(loop.time(), apart_seconds)
        if self._timer is not None:
            if self._fires_at <= at:
                return
            self._timer.cancel()
        self._fires_at, self._apart_seconds = at, apart_seconds
        self._timer = loop.call_at(at, self._beat)

    def _beat(self) -> None:
        self._timer = None
        self._bucket.take(asyncio.get_running_loop().time(), self._apart_seconds)
        self.beats += 1
        self._event.set()
        self._event = asyncio.Event()

    async def beyond(self, beats: int) -> None:
        """Return once there have been more beats than this."""
        while self.beats <= beats:
            await self._event.wait()


def apart_seconds(endpoints: int, workers: int) -> float:
    """Return the mean seconds between two sets of counts, at least, for these endpoints and workers."""
    return min(_MOST_APART_SECONDS, max(LEAST_APART_SECONDS, _APART_SECONDS_PER_COUNT * endpoints * workers))
