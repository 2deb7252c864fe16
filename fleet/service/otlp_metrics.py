"""Metrics by OTLP: the same registry as /metrics, converted family by family, pushed once an interval.

The registry is read on the event loop, as for /metrics, because its gauges read the loop's objects; the
export blocks a thread of its own. While an export is in progress, later ones are skipped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Counter

from fleet.service.telemetry import export_timeout, limit_exporter_logs, resource_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from opentelemetry.sdk.resources import Resource
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family
    from prometheus_client.samples import Sample

    from fleet.settings.telemetry import TelemetrySettings

logger = logging.getLogger(__name__)

SCOPE: Final = "warmroute"
MESSAGE_POINTS: Final = 4000
"""Collectors refuse messages above 4 MiB, and a large fleet has a point for each endpoint and signal."""
_UNITS: Final = {
    "_seconds": "s",
    "_bytes": "By",
    "_ratio": "1",
    "_celsius": "Cel",
    "_watts": "W",
    "_joules": "J",
    "_hertz": "Hz",
    "_volts": "V",
}
"""Prometheus has the unit at the end of the name, OTLP has a UCUM code next to it."""


def metrics_data(
    registry: CollectorRegistry, resource: Resource, started_ns: int, now_ns: int
) -> MetricsData:
    """Convert a registry. Names, descriptions and labels are those of /metrics."""
    metrics = [metric for family in registry.collect() for metric in _metrics(family, started_ns, now_ns)]
    scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def unit_of(name: str) -> str:
    """Return the UCUM code of a metric's unit by its name; empty for a plain number."""
    name = name.removesuffix("_total")
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), "")


def _metrics(family: Family, started_ns: int, now_ns: int) -> Iterable[Metric]:
    if family.type == "histogram":
        histograms = _histogram_points(family, started_ns, now_ns)
        if histograms:
            data = Histogram(histograms, AggregationTemporality.CUMULATIVE)
            yield Metric(family.name, family.documentation, unit_of(family.name), data)
        return
    by_name: dict[str, list[NumberDataPoint]] = {}
    for sample in family.samples:
        # The points themselves have creation times.
        if not sample.name.endswith("_created"):
            point = NumberDataPoint(dict(sample.labels), started_ns, now_ns, sample.value)
            by_name.setdefault(sample.name, []).append(point)
    for name, points in by_name.items():
        grows = family.type == "counter" or name.endswith(("_count", "_sum", "_total"))
        yield Metric(
            name,
            family.documentation,
            unit_of(name),
            Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if grows else Gauge(points),
        )


def _histogram_points(family: Family, started_ns: int, now_ns: int) -> list[HistogramDataPoint]:
    """Read cumulative buckets into OTLP's counts between bounds."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        labels = tuple(sorted((key, value) for key, value in sample.labels.items() if key != "le"))
        series.setdefault(labels, []).append(sample)
    points = []
    for labels, samples in series.items():
        total = 0.0
        cumulative: list[tuple[float, int]] = []
        for sample in samples:
            if sample.name.endswith("_bucket"):
                cumulative.append((float(sample.labels["le"]), int(sample.value)))
            elif sample.name.endswith("_sum"):
                total = sample.value
        if not cumulative:
            continue
        cumulative.sort()
        counts, before = [], 0
        for _, count in cumulative:
            counts.append(count - before)
            before = count
        bounds = [bound for bound, _ in cumulative if math.isfinite(bound)]
        points.append(
            HistogramDataPoint(
                attributes=dict(labels),
                start_time_unix_nano=started_ns,
                time_unix_nano=now_ns,
                count=before,
                sum=total,
                bucket_counts=counts if len(counts) > len(bounds) else [*counts, 0],
                explicit_bounds=bounds,
                min=None,  # type: ignore[arg-type] # Buckets have neither.
                max=None,  # type: ignore[arg-type]
            )
        )
    return points


class MetricPush:
    """Pushes a registry's metrics once an interval, if the settings enable it."""

    def __init__(
        self,
        settings: TelemetrySettings,
        role: str,
        registry: CollectorRegistry,
        *,
        exporter: Callable[[], Any] | None = None,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`exporter` makes the exporter; by default OTLP over gRPC, to the endpoint of the environment."""
        self._on = settings.metrics == "otlp"
        self._interval_seconds = settings.metrics_interval_seconds
        self._resource = resource_of(settings, role)
        self._registry = registry
        self._make_exporter = exporter or otlp_exporter
        self._clock_ns = clock_ns
        self._started_ns = clock_ns()
        self._pending: queue.Queue[MetricsData | None] = queue.Queue(maxsize=1)
        self._idle = threading.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        lost = Counter(
            "warmroute_metric_exports_lost",
            "Pushes of metrics that no collector got, by reason",
            ["reason"],
            registry=registry,
        )
        self._skipped = lost.labels("still_exporting")
        self._failed = lost.labels("export_failed")

    def start(self) -> None:
        """Start on the running loop, if the settings enable it."""
        if not self._on:
            return
        exporter = self._make_exporter()
        # A daemon: the exit must not wait for a collector that does not answer.
        threading.Thread(target=self._export, args=(exporter,), name="metrics", daemon=True).start()
        self._task = asyncio.create_task(self._push_for_ever(), name="metrics by OTLP")

    def push(self) -> bool:
        """Pass the current metrics to the exporter; False while it is still exporting."""
        if not self._idle.is_set():
            self._skipped.inc()
            return False
        data = metrics_data(self._registry, self._resource, self._started_ns, self._clock_ns())
        self._idle.clear()
        self._pending.put_nowait(data)
        return True

    async def close(self, timeout_seconds: float = 1.5) -> None:
        """Push once more and stop, within a time limit."""
        if self._task is None:
            return
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        if not (self.push() and await asyncio.to_thread(self._idle.wait, timeout_seconds)):
            logger.warning("the metrics collector does not answer: the last metrics are dropped")
            return
        self._pending.put_nowait(None)

    async def _push_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._interval_seconds)
            self.push()

    def _export(self, exporter: Any) -> None:
        """Run on the exporting thread until a None."""
        while (data := self._pending.get()) is not None:
            try:
                if exporter.export(data) is not MetricExportResult.SUCCESS:
                    self._failed.inc()
            except Exception:  # the edge of the thread: any exception costs this push only
                self._failed.inc()
                logger.exception("metrics cannot be exported")
            finally:
                self._idle.set()
        exporter.shutdown()


def otlp_exporter() -> Any:
    """OTLP over gRPC."""
    limit_exporter_logs()
    # Imported here because no other setting needs it.
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

    return OTLPMetricExporter(timeout=export_timeout("METRICS"), max_export_batch_size=MESSAGE_POINTS)
