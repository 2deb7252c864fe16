"""A token bucket: events go at once where they are few, and apart in the mean where they are many."""

from __future__ import annotations

from math import inf
from typing import Final

BURST: Final = 4
"""Events that may go at once, one behind the other."""


class TokenBucket:
    """The times of one stream of events, each with a token. Pure; times are in seconds.

    A token comes every `apart_seconds`, up to `BURST`.
    """

    def __init__(self) -> None:
        self._tokens = float(BURST)
        self._at = -inf
        """When the last event went, with `_tokens` left."""

    def at(self, now: float, apart_seconds: float) -> float:
        """Return when the next event may go, `now` or later."""
        return now + max(0.0, 1.0 - self._left(now, apart_seconds)) * apart_seconds

    def take(self, at: float, apart_seconds: float) -> None:
        """Count an event."""
        self._tokens = self._left(at, apart_seconds) - 1.0
        self._at = at

    def _left(self, now: float, apart_seconds: float) -> float:
        return min(BURST, self._tokens + (now - self._at) / max(apart_seconds, 1e-9))
