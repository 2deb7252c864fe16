"""The parent of several ext_proc workers: starts and restarts them, forwards signals, ends them all.

It touches no request: Envoy finds the workers by their addresses and their health by its own checks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.cause import cause_of
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.logs import configure_logging
from fleet.service.serving import StopSignals, run
from fleet.service.tls import Certificates
from fleet.settings.ext_proc import worker_address, worker_admin_address
from warmroute.cli.worker_admin import WorkerAdmins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from fleet.settings import Settings

logger = logging.getLogger(__name__)

WORKERS_PATH: Final = "/api/v1/workers"
WORKERS_VARIABLE: Final = "WARMROUTE_EXT_PROC_WORKERS"
_GRACE_SECONDS: Final = 5.0
"""Beyond the drain: then a worker that does not end is killed."""
_FAILED: Final = 1
FIRST_SECONDS: Final = 0.1
MOST_SECONDS: Final = 5.0
SETTLED_SECONDS: Final = 10.0
"""A worker that lived so long did not fail at its start."""
FAILS_ALWAYS_AFTER: Final = 3
"""Failed starts in a row after which one more is not expected to help."""


def run_workers(path: Path, settings: Settings) -> int:
    """Run as many workers as the settings say until SIGTERM; returns the exit status."""
    configure_logging()
    return run(_supervise(path, settings))


class Worker:
    """One of the processes, over all its lives."""

    def __init__(self, number: int, path: Path, settings: Settings, clock: Callable[[], float]) -> None:
        self.number = number
        self.address = worker_address(settings.ext_proc.address, number)
        self.admin = worker_admin_address(settings.admin.ext_proc_address, number)
        self.restarts = 0
        self.backoff = Backoff()
        self._argv = [
            sys.executable,
            "-m",
            "warmroute.cli.main",
            "ext-proc",
            str(path),
            "--worker",
            str(number),
        ]
        self._environ = {**os.environ, WORKERS_VARIABLE: str(settings.ext_proc.workers)}
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._clock = clock

    @property
    def pid(self) -> int | None:
        """None while it does not run."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def live(self) -> float:
        """Run the process to its end and return how long to wait before the next life."""
        began = self._clock()
        # Its standard input ties it to us. In a session of its own, a terminal's Ctrl-C reaches only us.
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stderr=sys.stderr,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            logger.error("worker %d cannot be started: %s", self.number, cause_of(error))
            return self.backoff.ended(0.0, in_order=False)
        logger.info("worker %d is process %d at %s", self.number, self._process.pid, self.address)
        if self._stopping:
            self.signal(signal.SIGTERM)
        status = await self._process.wait()
        lived = self._clock() - began
        logger.info("worker %d has ended with status %d after %.1f s", self.number, status, lived)
        return self.backoff.ended(lived, in_order=status == 0)

    def stop(self) -> None:
        """Let it drain and end, also if it is about to start."""
        if not self._stopping:
            self._stopping = True
            self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; a worker that does not run is left alone."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class Workers:
    """All of them. `run` returns when all have ended for good."""

    def __init__(
        self,
        path: Path,
        settings: Settings,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        count = settings.ext_proc.workers
        self.workers = [Worker(number, path, settings, clock) for number in range(count)]
        self._drain_seconds = settings.limits.drain_seconds
        self.on_ended: Callable[[int], None] = lambda _: None
        """Called with the number of each worker that has ended."""
        self._stopping = asyncio.Event()
        running = Gauge("warmroute_worker_processes", "ext_proc workers that run", registry=registry)
        running.set_function(lambda: sum(worker.pid is not None for worker in self.workers))
        self._restarts = Counter(
            "warmroute_worker_process_restarts", "Restarts of ext_proc workers", registry=registry
        )

    async def run(self) -> int:
        """Keep every worker alive until `stop`; 1 when no worker comes to life any more."""
        lives = [asyncio.create_task(self._keep_alive(worker)) for worker in self.workers]
        try:
            await self._stopping.wait()
        finally:
            self.stop()
            await self._end(lives)
        if all(worker.backoff.fails_always for worker in self.workers):
            logger.error("every worker fails at its start")
            return _FAILED
        return 0

    def stop(self) -> None:
        """Let every worker drain and end."""
        self._stopping.set()
        for worker in self.workers:
            worker.stop()

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to every worker."""
        for worker in self.workers:
            worker.signal(number)

    async def _keep_alive(self, worker: Worker) -> None:
        while True:
            pause = await worker.live()
            self.on_ended(worker.number)
            if all(other.backoff.fails_always for other in self.workers):
                # The supervisor of this process must see it.
                self._stopping.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            if self._stopping.is_set():
                return
            worker.restarts += 1
            self._restarts.inc()

    async def _end(self, lives: list[asyncio.Task[None]]) -> None:
        _, pending = await asyncio.wait(lives, timeout=self._drain_seconds + _GRACE_SECONDS)
        if pending:
            logger.warning("%d workers do not end and are killed", len(pending))
            self.pass_on(signal.SIGKILL)
            await asyncio.wait(pending)


async def _supervise(path: Path, settings: Settings) -> int:
    stop = StopSignals()
    registry = CollectorRegistry()
    workers = Workers(path, settings, registry)
    certificates = Certificates(registry)
    access = Access.of(settings, "admin.ext_proc_address", certificates)
    admins = WorkerAdmins([worker.admin for worker in workers.workers], access.token, registry, access.tls)
    workers.on_ended = admins.forget

    def shown() -> Mapping[str, Any]:
        return {
            "workers": [
                {
                    "worker": worker.number,
                    "pid": worker.pid,
                    "address": worker.address,
                    "admin": worker.admin or None,
                    "ready": admins.ready[worker.number],
                    "restarts": worker.restarts,
                }
                for worker in workers.workers
            ]
        }

    admin = AdminServer(
        access,
        registry,
        lambda: not stop.requested and any(admins.ready),
        {WORKERS_PATH: shown},
        queries={"/api/v1/decisions": [admins.decisions]},
    )
    await admin.start()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, workers.pass_on, signal.SIGHUP)
    running = asyncio.create_task(workers.run())
    stopped = asyncio.create_task(stop.wait())
    watching = asyncio.create_task(admins.run())
    try:
        certificates.start()
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        workers.stop()
        return await running
    finally:
        workers.stop()
        await asyncio.wait([running])
        for task in (stopped, watching):
            task.cancel()
        await asyncio.gather(stopped, watching, return_exceptions=True)
        await certificates.close()
        await admin.stop()
        logger.info("all workers have stopped")


class Backoff:
    """One worker's starts. The first restart after a settled life is immediate."""

    def __init__(self) -> None:
        self.failed_starts = 0
        """In a row."""

    def ended(self, lived_seconds: float, *, in_order: bool) -> float:
        """Note an end and return the seconds to wait; `in_order`: it drained on request."""
        if in_order or lived_seconds >= SETTLED_SECONDS:
            self.failed_starts = 0
            return 0.0
        self.failed_starts += 1
        return float(min(MOST_SECONDS, FIRST_SECONDS * 2 ** (self.failed_starts - 1)))

    @property
    def fails_always(self) -> bool:
        """Whether it fails at every start."""
        return self.failed_starts >= FAILS_ALWAYS_AFTER
