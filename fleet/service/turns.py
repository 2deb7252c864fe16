"""Work in slices: the work of all peers of one kind gets a bounded part of each pass of the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE_SECONDS: Final = 0.002


class Turns:
    """A lock in the order of arrival; its holders together get one slice in a pass of the loop.

    A piece of work runs to its end, so the loop waits for at most a slice plus the longest piece.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = asyncio.Lock()
        self._clock = clock
        self._until = float("-inf")

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        if self._clock() >= self._until:
            try:
                await asyncio.sleep(0)
            except BaseException:
                self._lock.release()
                raise
            self._until = self._clock() + SLICE_SECONDS

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
