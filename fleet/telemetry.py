"""OpenTelemetry traces: off, to the console, or by OTLP. A dead collector costs spans, never requests."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from fleet.otlp import repair_otlp_modules

if TYPE_CHECKING:
    from fleet.settings.model import TelemetrySettings


def tracer_provider(settings: TelemetrySettings, role: str) -> TracerProvider:
    """Make the provider that a service's composition root hands to its parts.

    OTLP goes where OTEL_EXPORTER_OTLP_ENDPOINT says. The batch processor's queue is bounded; over it
    spans are dropped.
    """
    resource = Resource.create({"service.name": settings.service_name, "service.namespace": role})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if settings.traces == "console":
        provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
    elif settings.traces == "otlp":
        repair_otlp_modules()
        # Imported here because it needs the modules just repaired.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=2)))
    return provider


async def shut_down(provider: TracerProvider, timeout_seconds: float = 3.0) -> None:
    """Export what is queued, within a bound, off the event loop."""
    try:
        await asyncio.wait_for(asyncio.to_thread(provider.shutdown), timeout_seconds)
    except TimeoutError:
        return
