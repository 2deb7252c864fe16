"""What a peak took goes back to the system, and giving back is done only where it is worth it."""

import subprocess
import sys
from pathlib import Path

from fleet.service.allocator import LEAST_BYTES, MOST_BYTES, FreeBytes

MEBI = 1 << 20
ROOT = Path(__file__).parents[2]

HOLES = """
import asyncio, ctypes, os, sys
from bench.abuse.site import resident_bytes
from fleet.service import allocator
from fleet.service.serving import run
if sys.argv[1] == "bare":
    run = asyncio.run
allocator._LOOK_SECONDS = 0.01
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


BLOCKS = """
import asyncio, ctypes, os, sys
from bench.abuse.site import resident_bytes
from fleet.service import serving
serving.trim_after_peaks = asyncio.Event().wait
run = asyncio.run if sys.argv[1] == "bare" else serving.run
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype = ctypes.c_void_p
free.argtypes = [ctypes.c_void_p]

async def main():
    free(malloc(1 << 20))
    before = resident_bytes(os.getpid())
    blocks = [malloc(size) for _ in range(500) for size in (70_000, 5_000)]
    for block in blocks[::2]:
        ctypes.memset(block, 1, 70_000)
    most = resident_bytes(os.getpid()) - before
    for block in blocks[::2]:
        free(block)
    return int(resident_bytes(os.getpid()) - before > most // 2)

raise SystemExit(run(main()))
"""


def ends(code: str, *arguments: str) -> int:
    return subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, check=False).returncode


def test_holes_go_back_when_a_peak_is_over() -> None:
    assert ends(HOLES, "bare") == 1
    assert ends(HOLES, "service") == 0


def test_large_blocks_go_back_at_once() -> None:
    """Without a look at the heap, between small ones that stay, and after a block like them was freed."""
    assert ends(BLOCKS, "bare") == 1
    assert ends(BLOCKS, "service") == 0


def test_a_long_pause_is_not_worth_it() -> None:
    """It takes 40 ms for `MOST_BYTES`, and every thread that allocates waits."""
    assert FreeBytes(0).call_for_trim(MOST_BYTES)
    assert not FreeBytes(0).call_for_trim(MOST_BYTES + 1)


def test_free_memory_is_returned_once() -> None:
    free = FreeBytes(10 * MEBI)
    assert not free.call_for_trim(10 * MEBI + LEAST_BYTES)
    assert free.call_for_trim(11 * MEBI + LEAST_BYTES)
    assert not FreeBytes(11 * MEBI + LEAST_BYTES).call_for_trim(11 * MEBI + LEAST_BYTES)


def test_memory_freed_again_is_returned_again() -> None:
    free = FreeBytes(100 * MEBI)
    assert not free.call_for_trim(10 * MEBI)
    assert free.call_for_trim(11 * MEBI + LEAST_BYTES)
