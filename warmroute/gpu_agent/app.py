"""The agent's composition root: NVML -> sampler -> page and reports."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry

from fleet.service.credentials import Dialler
from fleet.service.serving import StopSignals
from fleet.service.tls import Certificates
from warmroute.gpu_agent.metrics import AgentMetrics
from warmroute.gpu_agent.nvml import NvmlReader
from warmroute.gpu_agent.page import AgentServer, GpuCollector
from warmroute.gpu_agent.reporter import Reporter
from warmroute.gpu_agent.sampler import Sampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.settings import PeerTlsSettings

logger = logging.getLogger(__name__)

FRESH_INTERVALS: Final = 3
"""The agent is ready while its newest sample is younger than this many intervals."""
NEW_PROCESS_STATUS: Final = 75
"""EX_TEMPFAIL of sysexits.h: the process should be restarted."""
LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The verb's arguments."""

    node: str
    listen: str = "127.0.0.1:19100"
    control: str = ""
    """Address of xds_server; empty: no reports."""
    interval_seconds: float = 1.0
    tls: PeerTlsSettings | None = None
    """Certificate for `control`; None: plaintext."""


def load_pynvml() -> Any:
    """Import the module, which loads no library yet."""
    return importlib.import_module("pynvml")


async def serve(
    config: AgentConfig,
    load: Callable[[], Any] = load_pynvml,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Run until SIGTERM; returns the exit status.

    Raises:
        SettingsError: the page's address cannot be bound, or certificate files cannot be used.
    """
    stop = StopSignals()
    registry = CollectorRegistry()
    metrics = AgentMetrics.of(registry)
    reader = NvmlReader(load, clock, metrics)
    sampler = Sampler(reader, config.interval_seconds, max(1.0, config.interval_seconds), metrics)
    registry.register(GpuCollector(lambda: sampler.newest, clock))

    def ready() -> bool:
        newest, most = sampler.newest, FRESH_INTERVALS * max(1.0, config.interval_seconds)
        return not stop.requested and newest is not None and clock() - newest.sampled_at < most

    certificates = Certificates(registry)
    dialler = Dialler.of(config.control, config.tls, "agent", certificates, "--control")
    server = AgentServer(config.listen, registry, lambda: sampler.newest, ready, reader.note_cuda_error)
    await server.start()
    tasks = [asyncio.create_task(sampler.run(), name="samples")]
    if config.control:
        tasks.append(asyncio.create_task(certificates.run(), name="certificates"))
        reporter = Reporter(config.control, config.node, sampler, metrics, clock, dialler=dialler)
        tasks.append(asyncio.create_task(reporter.run(), name="reports"))
    try:
        return await _until_stopped(stop, reader, tasks)
    finally:
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await server.stop()
        await sampler.close()
        logger.info("the GPU agent has stopped")


async def _until_stopped(stop: StopSignals, reader: NvmlReader, tasks: list[asyncio.Task[None]]) -> int:
    """Wait for SIGTERM, for a reason to restart the process, or for a task that has failed."""
    waiting = asyncio.create_task(stop.wait())
    try:
        while not stop.requested:
            done, _ = await asyncio.wait(
                (waiting, *tasks), timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done - {waiting}:
                await task  # It never ends by itself: this raises its error.
            if reader.needs_restart:
                logger.error("the driver was replaced: only a new process can load the library that fits it")
                return NEW_PROCESS_STATUS
    finally:
        waiting.cancel()
    return 0
