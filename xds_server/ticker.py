"""When to tick: at once for changed members, a tick apart for changed loads, rarely when nothing changes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final

from fleet.service.turns import SLICE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COALESCE_SECONDS: Final = 0.05
"""Changes of the membership that come together, such as a pool's probes, make one update."""
IDLE_SECONDS: Final = 1.0
"""Without any change the signals still age, ramps go on and drains end."""
IDLE_SHARE: Final = 0.25
"""Of the time after which a signal is stale: picks read ages as of the newest tick."""


def idle_seconds(tick_seconds: float, stale_after_seconds: float) -> float:
    """Return the seconds after which a tick follows without any change."""
    return max(tick_seconds, min(IDLE_SECONDS, IDLE_SHARE * stale_after_seconds))


class Ticker:
    """Wakes the tick. All calls come from one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wake = asyncio.Event()
        self._urgent = False
        self._ticked_at = 0.0

    def on_load_change(self) -> None:
        """Tick at the next regular time: a load has changed."""
        self._wake.set()

    def request_tick(self) -> None:
        """Tick at once: a change must not wait."""
        self._urgent = True
        self._wake.set()

    def begin(self) -> None:
        """Mark the beginning of a tick: later changes cause the next one."""
        self._wake.clear()
        self._urgent = False
        self._ticked_at = self._clock()

    async def next(self, tick_seconds: float, idle_seconds: float) -> None:
        """Wait for an urgent change, for a changed load at least a tick after the last, or until idle."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(idle_seconds):
                await self._wake.wait()
                while not self._urgent and (wait := self._ticked_at + tick_seconds - self._clock()) > 0:
                    self._wake.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self._wake.wait()
                if self._urgent:
                    await asyncio.sleep(min(COALESCE_SECONDS, tick_seconds))


class Staged:
    """Runs stages one by one, between which other tasks may run, or all at once.

    A stage that took longer than a slice is followed by as long a rest: what comes meanwhile needs several
    passes of the loop, and would wait for a stage in each.
    """

    def __init__(
        self, stages: Callable[[], Iterator[None]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stages = stages
        self._clock = clock
        self._under_way: Iterator[None] | None = None

    def now(self) -> None:
        """Run all stages at once. A staged run in progress ends: its numbers are older."""
        self._under_way = None
        for _ in self._stages():
            pass

    async def run(self) -> None:
        """Run the stages one by one, until a newer run begins."""
        stages = self._under_way = self._stages()
        began = self._clock()
        for _ in stages:
            took = self._clock() - began
            await asyncio.sleep(took if took > SLICE_SECONDS else 0)
            if self._under_way is not stages:
                return
            began = self._clock()
