"""OpenTelemetry traces: off, to the console, or by OTLP. A dead collector costs spans, never requests.

OpenTelemetry's own environment variables set OTLP's endpoint, headers, certificates and compression
(`OTEL_EXPORTER_OTLP_ENDPOINT`, `..._HEADERS`, `..._TIMEOUT`, ...).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    ConsoleSpanExporter,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry, Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from fleet.settings.telemetry import TelemetrySettings

logger = logging.getLogger(__name__)

EXPORT_TIMEOUT_SECONDS: Final = 1.0
"""Of one export, unless OTEL_EXPORTER_OTLP_TIMEOUT is set."""
MAX_QUEUED_SPANS: Final = 2048
"""Above this, a new span is only counted."""
BATCH_SPANS: Final = 512
EXPORT_DELAY_SECONDS: Final = 1.0
"""The longest wait of a span for others in its message."""
LOG_INTERVAL_SECONDS: Final = 60.0


def tracer_provider(
    settings: TelemetrySettings, role: str, registry: CollectorRegistry | None = None
) -> TracerProvider:
    """Make the tracer provider of a service.

    With traces off no span records anything. `registry` gets the count of lost spans.
    """
    losses = SpanLosses(registry or CollectorRegistry())
    resource = resource_of(settings, role)
    if settings.traces == "none":
        return TracerProvider(resource=resource, sampler=ALWAYS_OFF, shutdown_on_exit=False)
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if settings.traces == "console":
        provider.add_span_processor(SpanQueue(ConsoleSpanExporter(out=sys.stderr), losses))
        return provider
    limit_exporter_logs()
    # Imported here because no other setting needs it.
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

    exporter = OTLPSpanExporter(timeout=export_timeout("TRACES"))
    provider.add_span_processor(SpanQueue(exporter, losses))
    return provider


def resource_of(settings: TelemetrySettings, role: str) -> Resource:
    """Return the service's resource; OTEL_RESOURCE_ATTRIBUTES adds to it."""
    return Resource.create({"service.name": settings.service_name, "service.namespace": role})


def export_timeout(signal: str) -> float | None:
    """Return the seconds for one export; None: the exporter reads them from the environment."""
    names = ("OTEL_EXPORTER_OTLP_TIMEOUT", f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT")
    return None if any(name in os.environ for name in names) else EXPORT_TIMEOUT_SECONDS


async def shut_down(provider: TracerProvider, timeout_seconds: float = 1.5) -> bool:
    """Export the queue off the event loop, within a time limit; return whether all of it was tried."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def export() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(done.set)

    # A daemon, because the exit waits for all other threads, and each batch may time out.
    threading.Thread(target=export, name="last spans", daemon=True).start()
    try:
        async with asyncio.timeout(timeout_seconds):
            await done.wait()
    except TimeoutError:
        logger.warning("the trace collector does not answer: the last spans are dropped")
        return False
    return True


class SpanLosses:
    """Counts spans that no collector got, by reason: the queue was full, or the export failed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        lost = Counter(
            "warmroute_spans_dropped",
            "Spans that no collector got, by reason",
            ["reason"],
            registry=registry,
        )
        self.queue_full = lost.labels("queue_full")
        self.export_failed = lost.labels("export_failed")


class CountingExporter(SpanExporter):
    """Passes spans on and counts those that were refused or timed out."""

    def __init__(self, exporter: SpanExporter, losses: SpanLosses) -> None:
        self._exporter = exporter
        self._losses = losses
        self.total = 0
        """Spans that have left the queue."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch; runs on the queue's own thread."""
        self.total += len(spans)
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is not SpanExportResult.SUCCESS:
                self._losses.export_failed.inc(len(spans))
        return result

    def shutdown(self) -> None:
        """Abandon the export in progress."""
        self._exporter.shutdown()


class SpanQueue(BatchSpanProcessor):
    """The SDK's batch processor with our limits: beyond the queue's limit, a new span is only counted.

    `on_end` only appends to a deque, so a dead collector does not delay requests.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        losses: SpanLosses,
        *,
        max_spans: int = MAX_QUEUED_SPANS,
        delay_seconds: float = EXPORT_DELAY_SECONDS,
    ) -> None:
        self._exports = CountingExporter(exporter, losses)
        super().__init__(
            self._exports,
            max_queue_size=max_spans,
            schedule_delay_millis=delay_seconds * 1e3,
            max_export_batch_size=min(BATCH_SPANS, max_spans),
        )
        self._losses = losses
        self._max_spans = max_spans
        self._total = 0
        """Spans that have come into the queue. All end on the event loop, so each total has one writer."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that has ended, or drop it."""
        if not (span.context and span.context.trace_flags.sampled):
            return
        # The SDK would drop an older span and log each time.
        if self._total - self._exports.total >= self._max_spans:
            self._losses.queue_full.inc()
            return
        self._total += 1
        super().on_end(span)


class RateLimit(logging.Filter):
    """Passes one record of each text in an interval: an exporter without its collector repeats itself."""

    def __init__(
        self, interval_seconds: float = LOG_INTERVAL_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._passed: dict[tuple[int, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes."""
        key, now = (record.levelno, str(record.msg)), self._clock()
        if now - self._passed.get(key, float("-inf")) < self._interval_seconds:
            return False
        self._passed[key] = now
        return True


def limit_exporter_logs() -> None:
    """Have the exporters log a dead collector once a minute, not once a batch."""
    for name in ("opentelemetry.exporter.otlp.proto.grpc.exporter", "opentelemetry.sdk._shared_internal"):
        exporter_logger = logging.getLogger(name)
        if not any(isinstance(entry, RateLimit) for entry in exporter_logger.filters):
            exporter_logger.addFilter(RateLimit())
