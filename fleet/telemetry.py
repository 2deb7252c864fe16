"""OpenTelemetry traces: off, to the console, or by OTLP. A dead collector costs spans, never requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from typing import TYPE_CHECKING

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from fleet.otlp import repair_otlp_modules

if TYPE_CHECKING:
    from fleet.settings.telemetry import TelemetrySettings

logger = logging.getLogger(__name__)


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

        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=1)))
    return provider


async def shut_down(provider: TracerProvider, timeout_seconds: float = 1.5) -> bool:
    """Export what is queued, within a bound, off the event loop; returns whether all of it was tried."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def export() -> None:
        provider.shutdown()
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            loop.call_soon_threadsafe(done.set)

    # A daemon, because the exit waits for every other thread, and one batch after the other may time out.
    threading.Thread(target=export, name="last spans", daemon=True).start()
    try:
        await asyncio.wait_for(done.wait(), timeout_seconds)
    except TimeoutError:
        logger.warning("the trace collector does not answer: the last spans are dropped")
        return False
    return True
