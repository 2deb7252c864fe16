"""Reads large pages off the loop, which in one process also answers requests."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from fleet.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable

LOOP_BYTES: Final = 65_536
"""A smaller page is read on the loop: the worst one takes some 20 ms."""
_SHARE: Final = 0.02
"""Of a processor, for the pages of one endpoint; one of a usual engine takes a tenth of that."""
_STALE_PART: Final = 3
"""A page is read this often before its signals are stale, whatever it costs."""

T = TypeVar("T")


@dataclass(slots=True)
class Cost:
    """What reading the newest page of one endpoint took."""

    cpu_seconds: float = 0.0

    def pause(self, interval: float, stale_after: float) -> float:
        """Return for how long after the interval no page is read: a costly one is read less often."""
        return max(0.0, min(self.cpu_seconds / _SHARE, stale_after / _STALE_PART) - interval)


class Aside:
    """Reads large pages on a thread, one at a time: several would only keep Python's lock from the loop.

    Of those that wait, the one goes first whose page before cost least: hostile pages wait for honest ones.
    """

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        """The clock returns the processor time of the calling thread."""
        self._clock = clock
        self._small = Turns()
        self._busy = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    async def run(self, cost: Cost, size: int, read: Callable[[], T]) -> T:
        """Read a page of `size` bytes by `read`, record its cost, and return the result."""

        def counted() -> T:
            began = self._clock()
            try:
                return read()
            finally:
                cost.cpu_seconds = self._clock() - began

        if size <= LOOP_BYTES:
            await self._small.step()
            return counted()
        await self._begin(cost.cpu_seconds)
        try:
            return await asyncio.to_thread(counted)
        finally:
            self._pass_on()

    async def _begin(self, before: float) -> None:
        if not self._busy:
            self._busy = True
            return
        waiter = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (before, next(self._numbers), waiter))
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            _, _, waiter = heappop(self._waiting)
            if not waiter.done():
                waiter.set_result(None)
                return
        self._busy = False
