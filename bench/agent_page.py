"""A GPU agent's page and reports, made by the agent's own code from a reading of imaginary GPUs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from fleet.gpu.faults import FaultEvent
from fleet.gpu.reading import GpuReading, NodeReading, NvLink, RemappedRows
from warmroute.demo.processes import free_port
from warmroute.gpu_agent.metrics import AgentMetrics
from warmroute.gpu_agent.page import GpuCollector
from warmroute.gpu_agent.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warmroute.gpu_agent.sampler import Sampler

_GIB: Final = 1024**3
_SAMPLE_SECONDS: Final = 1.0


class MadeUp:
    """Stands where the agent has its sampler: a new reading now and then."""

    async def newer(self, than: NodeReading | None) -> NodeReading:
        """Return a reading, after a while if there was one before."""
        if than is not None:
            await asyncio.sleep(_SAMPLE_SECONDS)
        return _reading()


@contextlib.asynccontextmanager
async def agent_page(report_to: str = "", node: str = "127.0.0.1") -> AsyncIterator[str]:
    """Serve the page, and report to an xds_server if one is named; yields the page's address."""
    registry = CollectorRegistry()
    metrics = AgentMetrics.of(registry)
    reporter = Reporter(report_to, node, cast("Sampler", MadeUp()), metrics, time.monotonic)
    reporting = asyncio.create_task(reporter.run()) if report_to else None
    registry.register(GpuCollector(_reading, time.monotonic))

    async def page(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    address = f"127.0.0.1:{free_port()}"
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", int(address.rpartition(":")[2])).start()
        yield address
    finally:
        if reporting is not None:
            reporting.cancel()
            await asyncio.wait([reporting])
        await runner.cleanup()


def _reading() -> NodeReading:
    return NodeReading(time.monotonic(), tuple(_gpu(index) for index in range(2)))


def _gpu(index: int) -> GpuReading:
    return GpuReading(
        uuid=f"GPU-made-up-{index}",
        index=index,
        memory_used_bytes=60 * _GIB,
        memory_total_bytes=80 * _GIB,
        utilisation_ratio=0.7,
        temperature_celsius=61.0,
        power_watts=480.0,
        power_limit_watts=700.0,
        clocks_reasons=frozenset({"sw_power_cap"}),
        ecc_corrected_total=3,
        ecc_uncorrected_total=0,
        remapped_rows=RemappedRows(1, 0, pending=False, failed=False),
        nvlinks=(NvLink(0, active=True), NvLink(1, active=True)),
        pcie_generation=5,
        pcie_width=16,
        faults=(FaultEvent("xid", "31", time.monotonic()),),
    )
