"""What is told of the services, and to whom."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fleet.settings.address import OptionalTcpAddress
from fleet.settings.strict import Name, Seconds, Share, Strict


class AdminSettings(Strict):
    """The admin HTTP server: status, health and /metrics. Empty address: off."""

    address: OptionalTcpAddress = "127.0.0.1:19000"
    ext_proc_address: OptionalTcpAddress = "127.0.0.1:19001"
    """For `warmroute ext-proc`, which may run on the same host."""
    token_file: Annotated[str, Field(pattern=r"^(/[^\x00]*)?$", max_length=4096)] = ""
    """A file with the token that requests must bear; required beyond loopback."""


class TelemetrySettings(Strict):
    """OpenTelemetry traces. OTLP's endpoint is OTEL_EXPORTER_OTLP_ENDPOINT, as everywhere."""

    traces: Literal["none", "console", "otlp"] = "none"
    metrics: Literal["none", "otlp"] = "none"
    """Beside the page at /metrics."""
    metrics_interval_seconds: Seconds = 10.0
    pick_sample_ratio: Share = 0.01
    """Of requests whose client does not say `sampled`; their spans make traces of their own."""
    client_sample_ratio: Share = 1.0
    """Of requests whose client says `sampled` in its traceparent; their spans continue the client's trace."""
    service_name: Name = "warmroute"
