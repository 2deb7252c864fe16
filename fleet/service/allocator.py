"""Returning memory of large messages and many connections from glibc's allocator to the system.

By default glibc serves large blocks from its heap once it has freed one like them. The memory of a message,
or of a thousand connections, then stays as free pages between used ones until `malloc_trim` returns them.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from typing import Final

logger = logging.getLogger(__name__)

_MMAP_THRESHOLD: Final = -3
"""As `malloc.h` numbers it."""
_LARGE_BYTES: Final = 64 * 1024
"""Of a block with pages of its own. gRPC reads a message into blocks of this size."""
_LOOK_SECONDS: Final = 1.0
_REST_SECONDS: Final = 3.0
LEAST_BYTES: Final = 8 * 1024 * 1024
MOST_BYTES: Final = 64 * 1024 * 1024
"""Returning these between blocks of 1 KB takes 40 ms, in which no thread can allocate from the heap."""


def map_large_blocks() -> None:
    """Give each large block pages of its own, which go back as it is freed, if the allocator is glibc's."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        logger.debug("the C library has no mallopt: its allocator stays as it is")
    elif not mallopt(_MMAP_THRESHOLD, _LARGE_BYTES):
        logger.warning("mallopt(M_MMAP_THRESHOLD, %d) is refused: free memory may stay here", _LARGE_BYTES)


async def trim_after_peaks() -> None:
    """Return the free pages between small blocks to the system after each peak, until cancelled.

    Threads that allocate have to wait meanwhile, the event loop's too. So it happens at most once in
    `_REST_SECONDS`, and only for `LEAST_BYTES` to `MOST_BYTES`; more stay for the next peak.
    """
    library = ctypes.CDLL(None)
    trim, info = getattr(library, "malloc_trim", None), getattr(library, "mallinfo2", None)
    if trim is None or info is None:
        logger.debug("the C library has no malloc_trim or no mallinfo2: free memory stays with the process")
        return
    info.restype = _Info
    free = FreeBytes(info().free)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if free.call_for_trim(info().free):
            await asyncio.to_thread(trim, ctypes.c_size_t(0))
            free = FreeBytes(info().free)
            await asyncio.sleep(_REST_SECONDS)


class FreeBytes:
    """Free bytes in the heaps, and how many of them may still be resident."""

    def __init__(self, now: int) -> None:
        """`now` bytes are free, and none of them resident."""
        self._least = now

    def call_for_trim(self, now: int) -> bool:
        """Whether enough has become free since then to return it, and not too much for a short pause."""
        self._least = min(self._least, now)
        return LEAST_BYTES < now - self._least <= MOST_BYTES


class _Info(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "free_chunks", "fast_chunks", "mapped_blocks", "mapped"),
            *("unused", "fast_free", "used", "free", "top"),
        )
    ]
    free: int
