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
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from prometheus_client import CollectorRegistry

from fleet.service.span_queue import SpanLosses, SpanQueue, quieten

if TYPE_CHECKING:
    from fleet.settings.telemetry import TelemetrySettings

logger = logging.getLogger(__name__)

EXPORT_TIMEOUT_SECONDS: Final = 1.0
"""Of one export, unless OTEL_EXPORTER_OTLP_TIMEOUT is set."""


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
    quieten()
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
