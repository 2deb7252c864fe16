"""Turns on the event loop: timers or answers of one moment do not make one long pass."""

from __future__ import annotations

import asyncio
import time
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_PORTION: Final = 50

T = TypeVar("T")


class Turn:
    """Lets tasks continue one per pass of the loop, in the order of their calls.

    A waiting task waits `rest` times as long as the task before it used.
    """

    def __init__(self, rest: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> None:
        self._rest = rest
        self._clock = clock
        self._lock = asyncio.Lock()
        self._ended_at = 0.0

    async def take(self) -> None:
        """Wait for the turn; what the caller does until its next wait is its part."""
        waits = self._lock.locked()
        async with self._lock:
            used = self._clock() - self._ended_at if waits else 0.0
            await asyncio.sleep(self._rest * used)
            self._ended_at = self._clock()


class Portions(Generic[T]):
    """Does one thing for each of many items, some of them in a pass of the loop."""

    def __init__(self, do: Callable[[T], None], name: str) -> None:
        """Each of `do` is short and raises nothing."""
        self._do = do
        self._name = name
        self._items: dict[T, None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, item: T) -> None:
        """Have it done, once, in the order in which items came."""
        self._items[item] = None
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=self._name)

    def discard(self, item: T) -> None:
        """Leave it out, if it has not been done yet."""
        self._items.pop(item, None)

    def clear(self) -> None:
        """Leave all out."""
        self._items.clear()

    async def _run(self) -> None:
        while self._items:
            for item in list(islice(self._items, _PORTION)):
                del self._items[item]
                self._do(item)
            await asyncio.sleep(0)
        self._task = None
