"""Returning memory of large messages and many connections from glibc's allocator to the system.

By default each thread of gRPC gets a heap of its own, and each heap keeps its largest size. The memory of a
thousand connections stays as free pages between used ones until `malloc_trim` returns them.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
from typing import Final

from fleet.service.pauses import Pauses, looks

logger = logging.getLogger(__name__)

_ARENA_MAX: Final = -8
"""As `malloc.h` numbers it."""
_REST_SECONDS: Final = 3.0
LEAST_BYTES: Final = 8 * 1024 * 1024
_SECONDS_PER_BYTE: Final = 0.3e-3 / (1024 * 1024)
_SECONDS_PER_CHUNK: Final = 3e-6
"""Measured on a busy host: 130 ms for 400 MiB in free chunks of 56 KB, 40 ms for 56 MiB in chunks of 7 KB."""


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


async def trim_after_peaks() -> None:
    """Return the free pages of the heap to the system after each peak, until cancelled.

    Trimming locks the heap, so every thread that allocates waits, the event loop's too. glibc cannot trim in
    parts: the argument of `malloc_trim` limits only the end of the heap. So it happens on a thread, at most
    once in `_REST_SECONDS`, only for `LEAST_BYTES` or more, and when `Pauses` permits it.
    """
    library = ctypes.CDLL(None)
    trim, info = getattr(library, "malloc_trim", None), getattr(library, "mallinfo2", None)
    if trim is None or info is None:
        logger.debug("the C library has no malloc_trim or no mallinfo2: free memory stays with the process")
        return
    info.restype = _Info
    now = info()
    free = FreeMemory(now.free, now.free_chunks)
    async for share in looks():
        now = info()
        if free.calls_for_trim(now.free, now.free_chunks, share):
            await asyncio.to_thread(trim, ctypes.c_size_t(0))
            now = info()
            free = FreeMemory(now.free, now.free_chunks)
            await asyncio.sleep(_REST_SECONDS)


class FreeMemory:
    """Free memory in the heap, and the part of it that may still be resident."""

    def __init__(self, free_bytes: int, chunks: int) -> None:
        """`free_bytes` in `chunks` are free, and none of them resident."""
        self._bytes = free_bytes
        self._chunks = chunks
        self._pauses = Pauses()

    def calls_for_trim(self, free_bytes: int, chunks: int, processor_share: float) -> bool:
        """Whether enough has become free since then, and the pause is short, or long at a good time.

        `processor_share` is the part of a processor that this process used since the last look.
        """
        self._bytes, self._chunks = min(self._bytes, free_bytes), min(self._chunks, chunks)
        more = free_bytes - self._bytes
        if more <= LEAST_BYTES:
            self._pauses.reset()
            return False
        pause_seconds = more * _SECONDS_PER_BYTE + (chunks - self._chunks) * _SECONDS_PER_CHUNK
        return self._pauses.permit(pause_seconds, processor_share)


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
    free_chunks: int
