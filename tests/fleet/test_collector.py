"""When a service makes full collections of garbage."""

import subprocess
import sys

from fleet.service.collector import LEAST_YOUNG, MOST_GROWTH, Garbage
from fleet.service.pauses import LAST_LOOK, QUIET_LOOKS

BUSY, QUIET = 0.5, 0.01
"""Shares of a processor."""
BASE = 600_000
"""Blocks of a started service."""
FLEET = 900_000
"""Blocks with 2,000 open streams: a full collection takes a third of a second."""

IN_TIME = """
import asyncio, gc, weakref
from fleet.service import collector, pauses

class Cycle:
    def __init__(self):
        self.itself = self

async def main():
    collector.exempt_from_collection()
    collecting = asyncio.create_task(collector.collect_at_quiet_times())
    gone = weakref.ref(Cycle())
    gc.collect(1)
    cycle = Cycle()
    old = weakref.ref(cycle)
    gc.collect(1)
    del cycle
    for _ in range(collector.LEAST_YOUNG):
        gc.collect(1)
    before = old() is not None
    async with asyncio.timeout(60):
        while old() is not None:
            await asyncio.sleep(0.01)
    collecting.cancel()
    raise SystemExit(0 if before and gone() is None else 1)

pauses.LOOK_SECONDS = 0.05
asyncio.run(main())
"""


def test_garbage_is_collected_in_a_quiet_time() -> None:
    assert subprocess.run([sys.executable, "-c", IN_TIME], check=False, timeout=120).returncode == 0


def test_a_short_collection_runs_at_once() -> None:
    garbage = Garbage(200_000)
    assert not garbage.calls_for_collection(219_000, LEAST_YOUNG, BUSY), "too little is new"
    assert garbage.calls_for_collection(221_000, LEAST_YOUNG, BUSY)


def test_a_long_collection_waits_for_a_quiet_time() -> None:
    garbage = Garbage(BASE)
    shares = (*(QUIET,) * (QUIET_LOOKS - 1), BUSY, *(QUIET,) * QUIET_LOOKS)
    calls = [garbage.calls_for_collection(FLEET, LEAST_YOUNG, share) for share in shares]
    assert calls == [*(False,) * (len(shares) - 1), True]


def test_a_busy_service_collects_at_the_last_look() -> None:
    garbage = Garbage(BASE)
    calls = [garbage.calls_for_collection(FLEET, LEAST_YOUNG, BUSY) for _ in range(LAST_LOOK)]
    assert calls == [*(False,) * (LAST_LOOK - 1), True]


def test_memory_that_has_doubled_is_collected() -> None:
    garbage = Garbage(BASE)
    grown = round(BASE * (1 + MOST_GROWTH))
    assert not garbage.calls_for_collection(grown - 1, LEAST_YOUNG, BUSY)
    assert garbage.calls_for_collection(grown, LEAST_YOUNG, BUSY)
    garbage.collected(grown)
    assert not garbage.calls_for_collection(grown, LEAST_YOUNG, BUSY)


def test_nothing_new_needs_no_collection() -> None:
    garbage = Garbage(BASE)
    calls = [garbage.calls_for_collection(2 * BASE, LEAST_YOUNG - 1, QUIET) for _ in range(2 * LAST_LOOK)]
    assert not any(calls)


def test_without_counted_blocks_only_a_quiet_time_is_good() -> None:
    """As with PYTHONMALLOC=malloc."""
    garbage = Garbage(0)
    assert not garbage.calls_for_collection(0, LEAST_YOUNG, BUSY)
    assert [garbage.calls_for_collection(0, LEAST_YOUNG, QUIET) for _ in range(QUIET_LOOKS)][-1]
