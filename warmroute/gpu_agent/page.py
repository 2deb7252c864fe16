"""The agent's HTTP server: metrics, health, and reports of CUDA errors on loopback."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from fleet.gpu.faults import cuda_code
from fleet.gpu.reading import CLOCKS_EVENT_REASONS
from fleet.service.admin import add_health
from fleet.service.admin_access import Access
from fleet.service.http_server import HttpServer, body_of
from fleet.settings.address import is_local

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import CollectorRegistry, Metric

    from fleet.gpu.reading import GpuReading, NodeReading

logger = logging.getLogger(__name__)

LABELS: Final = ("uuid", "index")
GAUGES: Final = {
    "memory_used_bytes": "Memory in use, what the driver reserves included",
    "memory_total_bytes": "Memory of the GPU",
    "utilisation_ratio": "Share of time in which a kernel ran",
    "temperature_celsius": "Temperature of the chip",
    "power_watts": "Power drawn",
    "power_limit_watts": "Power limit in force",
    "ecc_corrected_total": "Corrected memory errors since the driver was loaded",
    "ecc_uncorrected_total": "Uncorrected memory errors since the driver was loaded",
    "retirement_pending": "1 while a retired page waits for a reset",
    "mig_enabled": "1 while the GPU is cut into MIG slices",
    "pcie_generation": "PCIe generation of the link as it runs now",
    "pcie_width": "Lanes of the PCIe link as it runs now",
}
"""Fields of a reading that are numbers, each a metric `warmroute_gpu_FIELD`; those in `_total` count."""
MAX_BODY_BYTES: Final = 4096


class GpuCollector(Collector):
    """The newest reading as metrics. A field that is unknown has no sample."""

    def __init__(self, newest: Callable[[], NodeReading | None], clock: Callable[[], float]) -> None:
        self._newest = newest
        self._clock = clock

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering needs no reading."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of the newest reading."""
        reading = self._newest()
        gpus = () if reading is None else reading.gpus
        yield GaugeMetricFamily("warmroute_gpus", "GPUs known, lost ones included", value=len(gpus))
        if reading is not None:
            age = max(0.0, self._clock() - reading.sampled_at)
            yield GaugeMetricFamily("warmroute_gpu_sample_age_seconds", "Age of the newest sample", value=age)
        for field, text in GAUGES.items():
            yield _plain(field, text, gpus)
        yield from _parts(gpus)


def _labels(gpu: GpuReading) -> list[str]:
    return [gpu.uuid, "" if gpu.index is None else str(gpu.index)]


def _plain(field: str, text: str, gpus: tuple[GpuReading, ...]) -> Metric:
    kind = CounterMetricFamily if field.endswith("_total") else GaugeMetricFamily
    family = kind(f"warmroute_gpu_{field}", text, labels=LABELS)
    for gpu in gpus:
        value = getattr(gpu, field)
        if value is not None:
            family.add_metric(_labels(gpu), float(value))
    return family


def _parts(gpus: tuple[GpuReading, ...]) -> Iterator[Metric]:
    def gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"warmroute_gpu_{name}", text, labels=(*LABELS, *labels))

    lost = gauge("lost", "1 for a GPU that was there and does not answer")
    clocks = gauge("clocks_event_reason", "1 for each reason why the clocks are what they are", "reason")
    rows = gauge("remapped_rows", "Memory rows put aside", "cause")
    pending = gauge("row_remap_pending", "1 while a row waits for a reset to be remapped")
    failed = gauge("row_remap_failed", "1 when a row could not be remapped")
    action = gauge("recovery_action", "1 for the action that the driver requests", "action")
    links = gauge("nvlinks_active", "NVLinks that are up")
    peers = gauge("peer_link", "1 for the way to another GPU of the host", "peer", "link")
    used = gauge("mig_memory_used_bytes", "Memory in use of a MIG slice", "slice", "instance")
    total = gauge("mig_memory_total_bytes", "Memory of a MIG slice", "slice", "instance")
    faults = CounterMetricFamily(
        "warmroute_gpu_faults", "Faults since the agent began", labels=(*LABELS, "kind", "code")
    )
    for gpu in gpus:
        at = _labels(gpu)
        lost.add_metric(at, float(gpu.lost))
        for reason in CLOCKS_EVENT_REASONS.values() if gpu.clocks_reasons is not None else ():
            clocks.add_metric([*at, reason], float(reason in (gpu.clocks_reasons or ())))
        if gpu.remapped_rows is not None:
            rows.add_metric([*at, "correctable"], gpu.remapped_rows.correctable)
            rows.add_metric([*at, "uncorrectable"], gpu.remapped_rows.uncorrectable)
            pending.add_metric(at, float(gpu.remapped_rows.pending))
            failed.add_metric(at, float(gpu.remapped_rows.failed))
        if gpu.recovery_action is not None:
            action.add_metric([*at, gpu.recovery_action], 1.0)
        if gpu.nvlinks is not None:
            links.add_metric(at, sum(bool(link.active) for link in gpu.nvlinks))
        for peer in gpu.peers or ():
            peers.add_metric([*at, peer.uuid, peer.link], 1.0)
        for mig in gpu.mig_slices:
            name = [*at, mig.uuid, "" if mig.instance is None else str(mig.instance)]
            if mig.memory_used_bytes is not None and mig.memory_total_bytes is not None:
                used.add_metric(name, mig.memory_used_bytes)
                total.add_metric(name, mig.memory_total_bytes)
        for fault in gpu.faults:
            faults.add_metric([*at, fault.kind, fault.code], fault.times)
    yield from (lost, clocks, rows, pending, failed, action, links, peers, used, total, faults)


class AgentServer:
    """Serves the page on one TCP address."""

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        newest: Callable[[], NodeReading | None],
        ready: Callable[[], bool],
        note_cuda_error: Callable[[str, int], None],
    ) -> None:
        self._address = address
        self._newest = newest
        self._note = note_cuda_error
        self._access = Access(address, field="--listen")
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        add_health(application.router, registry, ready, "no fresh sample")
        # A reported fault may take a GPU out of service, so only this host may report.
        if is_local(address):
            application.router.add_post("/faults", self._faults)
        self._server = HttpServer(self._access, application)

    async def start(self) -> None:
        """Bind and serve.

        Raises:
            SettingsError: the address cannot be bound.
        """
        await self._server.start()
        logger.info("the GPU agent's page is on %s", self._address)

    async def stop(self) -> None:
        """Close the listener and its connections."""
        await self._server.stop()

    async def _faults(self, request: web.Request) -> web.Response:
        """`{"gpu": UUID or index, "cuda_error": name or number}`, from a wrapper around an engine."""
        refused = self._access.web_page(request.headers)
        if refused is not None:
            return web.Response(text=f"{refused[1]}\n", status=refused[0])
        try:
            report = json.loads(await body_of(request))
            gpu, error = str(report["gpu"]), cuda_code(str(report["cuda_error"]))
        except (ValueError, KeyError, TypeError, RecursionError) as fault:
            return web.Response(text=f"not a fault: {type(fault).__name__}\n", status=400)
        if error is None:
            return web.Response(text="no CUDA error of that name\n", status=400)
        reading = self._newest()
        gpus = () if reading is None else reading.gpus
        uuid = next((entry.uuid for entry in gpus if gpu in {entry.uuid, str(entry.index)}), None)
        if uuid is None:
            return web.Response(text="no such GPU here\n", status=404)
        self._note(uuid, error)
        return web.Response(status=204)
