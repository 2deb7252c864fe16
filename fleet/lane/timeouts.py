"""Time limits of many things alike by one timer, which runs only while there is such a thing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

K = TypeVar("K")


class Timeouts(Generic[K]):
    """Calls `expire` for each key that stays for `seconds`.

    All have the same time, so the first is always the next. A discarded key leaves the timer running: it
    fires once, and not again before there is another key.
    """

    def __init__(self, seconds: float, expire: Callable[[K], None]) -> None:
        self._seconds = seconds
        self._expire = expire
        self._until: dict[K, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, key: K) -> None:
        """Begin the time of a key."""
        loop = asyncio.get_running_loop()
        self._until[key] = until = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(until, self._on_time)

    def discard(self, key: K) -> None:
        """Forget a key, if it is still there."""
        self._until.pop(key, None)

    def oldest(self) -> K | None:
        """Return the key that was added first; None: there is none."""
        return next(iter(self._until), None)

    def __len__(self) -> int:
        return len(self._until)

    def longest_seconds(self) -> float:
        """Return for how long the oldest key has stayed; 0 if there is none."""
        key = self.oldest()
        if key is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._until[key] + self._seconds

    def expire_oldest(self) -> None:
        """End the oldest key's time now."""
        key = self.oldest()
        if key is not None:
            del self._until[key]
            self._expire(key)

    def close(self) -> None:
        """Forget all keys."""
        self._until.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _on_time(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while (key := self.oldest()) is not None:
            if (until := self._until[key]) > loop.time():
                self._timer = loop.call_at(until, self._on_time)
                return
            del self._until[key]
            self._expire(key)
