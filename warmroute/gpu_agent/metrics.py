"""The agent's own metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from prometheus_client import Counter, Gauge

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True)
class AgentMetrics:
    """The agent's own counters; they may be used from any thread."""

    samples: Counter
    overruns: Counter
    faults: Counter
    field_errors: Counter
    restarts: Counter
    connected: Gauge
    reports: Counter
    breaks: Counter

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Self:
        """Create them in a registry."""
        prefix = "warmroute_gpu_agent_"
        return cls(
            Counter(f"{prefix}samples_total", "Samples of all GPUs taken", registry=registry),
            Counter(f"{prefix}overruns_total", "Samples not done at their deadline", registry=registry),
            Counter(f"{prefix}faults_total", "Samples that failed by our fault", registry=registry),
            Counter(
                f"{prefix}field_errors_total",
                "Fields that NVML did not return, by its error",
                ["field", "error"],
                registry=registry,
            ),
            Counter(f"{prefix}nvml_restarts_total", "Times that NVML was shut down", registry=registry),
            Gauge(f"{prefix}connected", "1 while xds_server answers reports", registry=registry),
            Counter(f"{prefix}reports_total", "Reports that xds_server took", registry=registry),
            Counter(f"{prefix}report_breaks_total", "Broken streams to xds_server", registry=registry),
        )

    def field_error(self, field: str, error: str) -> None:
        """Count a field that is unknown because of an error."""
        self.field_errors.labels(field, error).inc()
