"""OpenTelemetry traces and metrics."""

from __future__ import annotations

from typing import Literal

from fleet.settings.strict import Name, Seconds, Share, Strict


class TelemetrySettings(Strict):
    """OpenTelemetry traces. OTLP's endpoint is OTEL_EXPORTER_OTLP_ENDPOINT, as everywhere."""

    traces: Literal["none", "console", "otlp"] = "none"
    metrics: Literal["none", "otlp"] = "none"
    """In addition to the page at /metrics."""
    metrics_interval_seconds: Seconds = 10.0
    pick_sample_ratio: Share = 0.01
    """Of requests without a `sampled` traceparent; their spans begin new traces."""
    client_sample_ratio: Share = 1.0
    """Of requests with a `sampled` traceparent; their spans continue the client's trace."""
    service_name: Name = "warmroute"
