"""The rate at which new streams get their first response: a fleet that reconnects together waits in line.

Rule
    A token bucket: `burst` streams at once, then `per_second`. Streams beyond that wait, first
    come first served, and are not refused: their Envoys keep their configuration. A stream that ends while
    it waits takes no token. Pushes to admitted streams never wait.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_PER_SECOND = 1000.0
DEFAULT_BURST = 200


class TokenBucket:
    """`burst` tokens, refilled at `per_second`; times are seconds of any one clock."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at: float | None = None

    def wait_seconds(self, now: float) -> float:
        """Return how long until there is a token; 0 if there is one."""
        if self._filled_at is not None:
            filled = self._tokens + (now - self._filled_at) * self._per_second
            self._tokens = min(filled, self._burst)
        self._filled_at = now
        return max((1.0 - self._tokens) / self._per_second, 0.0)

    def take(self) -> None:
        """Take a token; only after `wait_seconds` returned 0."""
        self._tokens -= 1.0


class Admission:
    """Admits streams in order of arrival."""

    def __init__(
        self,
        per_second: float = DEFAULT_PER_SECOND,
        burst: int = DEFAULT_BURST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket = TokenBucket(per_second, burst)
        self._clock = clock
        self._turn = asyncio.Lock()

    async def enter(self) -> bool:
        """Return once the stream is admitted; True if it had to wait."""
        waited = self._turn.locked()
        async with self._turn:
            while (seconds := self._bucket.wait_seconds(self._clock())) > 0.0:
                waited = True
                await asyncio.sleep(seconds)
            self._bucket.take()
        return waited
