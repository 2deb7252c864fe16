"""Returning memory of large messages and many connections from glibc's allocator to the system.

By default each thread of gRPC gets a heap of its own, and each heap keeps its largest size. The memory of a
thousand connections stays as free pages between used ones until `malloc_trim` returns them.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from typing import Final

logger = logging.getLogger(__name__)

_ARENA_MAX: Final = -8
"""As `malloc.h` numbers it."""
_LOOK_SECONDS: Final = 1.0
_REST_SECONDS: Final = 3.0
WORTH_BYTES: Final = 8 * 1024 * 1024


def share_one_heap() -> None:
    """Let all threads of this process allocate from one heap, where the allocator is glibc's.

    Memory that one thread frees then serves a message on any thread. Python's lock lets few of them allocate
    at once anyway.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        logger.debug("the C library has no mallopt: its allocator stays as it is")
    elif not mallopt(_ARENA_MAX, 1):
        logger.warning("mallopt(M_ARENA_MAX, 1) is refused: threads keep heaps of their own")


async def give_back_at_rest() -> None:
    """Return the free pages of the heaps to the system after each peak, until cancelled.

    That takes milliseconds, in which threads that allocate may have to wait. So it happens on a thread, at
    most once in `_REST_SECONDS`, and only for `WORTH_BYTES` or more.
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
        if free.is_worth(info().free):
            await asyncio.to_thread(trim, ctypes.c_size_t(0))
            free = FreeBytes(info().free)
            await asyncio.sleep(_REST_SECONDS)


class FreeBytes:
    """Free bytes in the heaps, and how many of them may still be resident."""

    def __init__(self, now: int) -> None:
        """`now` bytes are free, and none of them resident."""
        self._least = now

    def is_worth(self, now: int) -> bool:
        """Whether enough has become free since then to return it."""
        self._least = min(self._least, now)
        return now > self._least + WORTH_BYTES


class _Info(ctypes.Structure):
    """`struct mallinfo2`."""

    _fields_ = [
        ("arena", ctypes.c_size_t),
        ("free_chunks", ctypes.c_size_t),
        ("fast_chunks", ctypes.c_size_t),
        ("mapped_blocks", ctypes.c_size_t),
        ("mapped", ctypes.c_size_t),
        ("unused", ctypes.c_size_t),
        ("fast_free", ctypes.c_size_t),
        ("used", ctypes.c_size_t),
        ("free", ctypes.c_size_t),
        ("top", ctypes.c_size_t),
    ]
    free: int
