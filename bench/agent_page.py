"""A page as a GPU agent's, made by the agent's own code from a reading of two GPUs that nobody has."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from bench.processes import free_port
from fleet.faults import FaultEvent
from fleet.gpu import GpuReading, NodeReading, NvLink, RemappedRows
from gpu_agent.metrics import AgentMetrics
from gpu_agent.page import GpuCollector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_GIB: Final = 1024**3


@contextlib.asynccontextmanager
async def agent_page() -> AsyncIterator[str]:
    """Serve the page for as long as the context lasts; yields its address."""
    registry = CollectorRegistry()
    AgentMetrics.of(registry).connected.set(1)
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
