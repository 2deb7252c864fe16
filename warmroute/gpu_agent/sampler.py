"""NVML off the event loop: one thread, one call at a time, a deadline for each sample.

NVML may hang in the driver. Then the thread hangs too, the last reading ages, and no second call is made
until the first one has returned.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.gpu.reading import NodeReading
    from warmroute.gpu_agent.metrics import AgentMetrics
    from warmroute.gpu_agent.nvml import NvmlReader

logger = logging.getLogger(__name__)

CLOSE_SECONDS: Final = 2.0
"""The longest wait for the end of NVML."""


class Sampler:
    """Takes a sample every `interval_seconds` and holds the newest."""

    def __init__(
        self, reader: NvmlReader, interval_seconds: float, deadline_seconds: float, metrics: AgentMetrics
    ) -> None:
        self._reader = reader
        self._interval = interval_seconds
        self._deadline = deadline_seconds
        self._metrics = metrics
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._done = asyncio.Event()
        self._done.set()
        self._changed = asyncio.Event()
        self._newest: NodeReading | None = None
        self._hanging = False
        # A daemon, because the exit waits for all other threads, and NVML may never return.
        self._thread = threading.Thread(target=self._work, name="NVML", daemon=True)

    @property
    def newest(self) -> NodeReading | None:
        """The newest reading; None before the first."""
        return self._newest

    @property
    def hanging(self) -> bool:
        """Whether a sample is past its deadline and has not returned."""
        return self._hanging

    async def newer(self, than: NodeReading | None) -> NodeReading:
        """Wait for a reading that is not `than`."""
        while (newest := self._newest) is None or newest is than:
            await self._changed.wait()
        return newest

    async def run(self) -> None:
        """Sample until cancelled."""
        self._thread.start()
        while True:
            if self._done.is_set():
                self._done.clear()
                self._jobs.put(self._sample_on(asyncio.get_running_loop()))
            await self._wait_for_sample()
            await asyncio.sleep(self._interval)

    async def _wait_for_sample(self) -> None:
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes with the result.
            async with asyncio.timeout(self._deadline):
                await self._done.wait()
        except TimeoutError:
            self._metrics.overruns.inc()
            if not self._hanging:
                logger.warning("NVML has not answered for %g s: the last reading ages", self._deadline)
            self._hanging = True

    def _sample_on(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def job() -> None:
            reading: NodeReading | None = None
            try:
                reading = self._reader.sample()
            except Exception:  # the edge of the thread: it must live on, and the last reading ages
                self._metrics.faults.inc()
                logger.exception("a sample of the GPUs failed by our fault")
            finally:
                with contextlib.suppress(RuntimeError):  # The loop is closed.
                    loop.call_soon_threadsafe(self._take, reading)

        return job

    def _take(self, reading: NodeReading | None) -> None:
        if self._hanging:
            logger.info("NVML answers again")
        self._hanging = False
        self._done.set()
        if reading is None:
            return
        self._metrics.samples.inc()
        self._newest = reading
        self._changed.set()
        self._changed = asyncio.Event()

    async def close(self) -> None:
        """End NVML, unless it hangs."""
        if not self._thread.is_alive() or self._hanging:
            return
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def job() -> None:
            try:
                self._reader.close()
            finally:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(closed.set)

        self._jobs.put(job)
        self._jobs.put(None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await closed.wait()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
