"""Spans on their way out: a limit, and a count of all that is lost."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from fleet.service.telemetry import RateLimit, SpanLosses, SpanQueue, tracer_provider
from fleet.settings.telemetry import TelemetrySettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan


class Collector(SpanExporter):
    """Holds each batch until it is let go."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.result = result
        self.free = threading.Event()
        self.exporting = threading.Event()
        self.got: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.exporting.set()
        assert self.free.wait(20)
        self.got += [span.name for span in spans]
        return self.result

    def shutdown(self) -> None:
        self.free.set()


def lost(registry: CollectorRegistry, reason: str) -> float | None:
    return registry.get_sample_value("warmroute_spans_dropped_total", {"reason": reason})


def provider_of(collector: Collector, max_spans: int = 3) -> tuple[TracerProvider, CollectorRegistry]:
    registry = CollectorRegistry()
    provider = TracerProvider(shutdown_on_exit=False)
    queue = SpanQueue(collector, SpanLosses(registry), max_spans=max_spans, delay_seconds=0.01)
    provider.add_span_processor(queue)
    return provider, registry


def test_over_the_limit_new_spans_are_only_counted() -> None:
    collector = Collector()
    provider, registry = provider_of(collector)
    tracer = provider.get_tracer("x")
    tracer.start_span("0").end()
    assert collector.exporting.wait(20), "the first is being exported, and the queue is empty"
    for number in range(1, 8):
        tracer.start_span(str(number)).end()
    assert lost(registry, "queue_full") == 4
    collector.free.set()
    provider.shutdown()
    assert collector.got == ["0", "1", "2", "3"]
    assert lost(registry, "export_failed") == 0


def test_spans_that_the_collector_refuses_are_counted() -> None:
    collector = Collector(SpanExportResult.FAILURE)
    collector.free.set()
    provider, registry = provider_of(collector)
    provider.get_tracer("x").start_span("a").end()
    provider.shutdown()
    assert lost(registry, "export_failed") == 1


def test_without_traces_no_span_records_anything() -> None:
    registry = CollectorRegistry()
    tracer = tracer_provider(TelemetrySettings(), "test", registry).get_tracer("x")
    assert not tracer.start_span("y").is_recording()
    assert lost(registry, "queue_full") == 0


def test_exporter_errors_are_logged_once_an_interval() -> None:
    now = [100.0]
    filtered = RateLimit(60.0, lambda: now[0])

    def passes(text: str) -> bool:
        return filtered.filter(logging.LogRecord("x", logging.ERROR, "", 0, text, (), None))

    assert passes("no collector")
    assert not passes("no collector")
    assert passes("something else")
    now[0] += 60.0
    assert passes("no collector")
