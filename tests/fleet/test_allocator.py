"""What a peak took goes back to the system, and giving back is done only where it is worth it."""

import subprocess
import sys
from pathlib import Path

from fleet.service.allocator import LEAST_BYTES, FreeMemory
from fleet.service.pauses import LAST_LOOK, QUIET_LOOKS

MEBI = 1 << 20
BUSY, QUIET = 0.5, 0.01
"""Shares of a processor."""
ROOT = Path(__file__).parents[2]

HOLES = """
import asyncio, ctypes, os, sys
from bench.abuse.site import resident_bytes
from fleet.service import pauses
from fleet.service.serving import run
if sys.argv[1] == "bare":
    run = asyncio.run
if sys.argv[1] == "long":
    pauses.MOST_PAUSE_SECONDS = 0.0
pauses.LOOK_SECONDS = 0.01
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype = ctypes.c_void_p
free.argtypes = [ctypes.c_void_p]

async def main():
    await asyncio.sleep(0.05)
    before = resident_bytes(os.getpid())
    blocks = [malloc(8000) for _ in range(8000)]
    for block in blocks:
        ctypes.memset(block, 1, 8000)
    await asyncio.sleep(0.05)
    kept = [block for number, block in enumerate(blocks) if number % 8 == 0]
    for number, block in enumerate(blocks):
        if number % 8:
            free(block)
    most = resident_bytes(os.getpid()) - before
    for _ in range(200):
        await asyncio.sleep(0.01)
        if resident_bytes(os.getpid()) - before < most // 2:
            return 0
    return 1

raise SystemExit(run(main()))
"""


def ends(code: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=False).returncode


def test_holes_go_back_when_a_peak_is_over() -> None:
    assert ends(HOLES, "bare") == 1
    assert ends(HOLES, "service") == 0


def test_holes_of_a_long_pause_go_back_in_a_quiet_time() -> None:
    assert ends(HOLES, "long") == 0


def test_a_long_pause_waits_for_a_quiet_time() -> None:
    """Trimming locks the heap: 130 ms for 400 MiB, and as long for fewer bytes in very many chunks."""
    assert FreeMemory(0, 0).calls_for_trim(128 * MEBI, 1000, BUSY)
    assert FreeMemory(300 * MEBI, 17_000).calls_for_trim(364 * MEBI, 17_100, BUSY)
    for free_bytes, chunks in ((400 * MEBI, 1000), (64 * MEBI, 17_000)):
        free = FreeMemory(0, 0)
        shares = (*(QUIET,) * (QUIET_LOOKS - 1), BUSY, *(QUIET,) * QUIET_LOOKS)
        calls = [free.calls_for_trim(free_bytes, chunks, share) for share in shares]
        assert calls == [*(False,) * (len(shares) - 1), True]


def test_a_busy_service_pauses_at_the_last_look() -> None:
    free = FreeMemory(0, 0)
    calls = [free.calls_for_trim(400 * MEBI, 1000, BUSY) for _ in range(LAST_LOOK)]
    assert calls == [*(False,) * (LAST_LOOK - 1), True]


def test_free_memory_is_returned_once() -> None:
    free = FreeMemory(10 * MEBI, 0)
    assert not free.calls_for_trim(10 * MEBI + LEAST_BYTES, 0, BUSY)
    assert free.calls_for_trim(11 * MEBI + LEAST_BYTES, 0, BUSY)
    free = FreeMemory(11 * MEBI + LEAST_BYTES, 0)
    assert not any(free.calls_for_trim(11 * MEBI + LEAST_BYTES, 0, QUIET) for _ in range(LAST_LOOK))


def test_memory_freed_again_is_returned_again() -> None:
    free = FreeMemory(100 * MEBI, 0)
    assert not free.calls_for_trim(10 * MEBI, 0, BUSY)
    assert free.calls_for_trim(11 * MEBI + LEAST_BYTES, 0, BUSY)
