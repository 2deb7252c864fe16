"""Export of spans to a collector: a bounded queue, an exporting thread, and a count of lost spans."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.sdk.trace import ReadableSpan
    from prometheus_client import CollectorRegistry

MAX_QUEUED_SPANS: Final = 2048
BATCH_SPANS: Final = 512
EXPORT_DELAY_SECONDS: Final = 1.0
"""The longest wait of a span for others in its message."""
LOG_INTERVAL_SECONDS: Final = 60.0


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

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export a batch; runs on the queue's own thread."""
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

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Flush the exporter."""
        return self._exporter.force_flush(timeout_millis)


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
        super().__init__(
            CountingExporter(exporter, losses),
            max_queue_size=max_spans,
            schedule_delay_millis=delay_seconds * 1e3,
            max_export_batch_size=min(BATCH_SPANS, max_spans),
        )
        self._losses = losses
        self._max_spans = max_spans

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that has ended, or drop it."""
        # The SDK would drop an older span and log each time. It has no public access to the queue's length.
        if len(self._batch_processor._queue) >= self._max_spans:
            self._losses.queue_full.inc()
            return
        super().on_end(span)


class Seldom(logging.Filter):
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


def quieten() -> None:
    """Have the exporters log a dead collector once a minute, not once a batch."""
    for name in ("opentelemetry.exporter.otlp.proto.grpc.exporter", "opentelemetry.sdk._shared_internal"):
        exporter_logger = logging.getLogger(name)
        if not any(isinstance(entry, Seldom) for entry in exporter_logger.filters):
            exporter_logger.addFilter(Seldom())
