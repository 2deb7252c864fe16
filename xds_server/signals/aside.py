"""Reading large pages beside the loop, which in one process also answers requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

LOOP_BYTES: Final = 65_536
"""A smaller page is read on the loop: the worst one takes some 20 ms."""

T = TypeVar("T")


class Aside:
    """Runs one read at a time on a thread: several would only keep Python's lock from the loop."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)

    async def run(self, size: int, read: Callable[[], T]) -> T:
        """Read a page of so many bytes, and return what `read` does."""
        if size <= LOOP_BYTES:
            return read()
        async with self._turn:
            return await asyncio.to_thread(read)
