"""The registry by OTLP: the same names and numbers as on /metrics, and no harm from a dead collector."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    MetricExportResult,
    MetricsData,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry
from prometheus_client import Counter as PromCounter
from prometheus_client import Gauge as PromGauge
from prometheus_client import Histogram as PromHistogram

from fleet.service.otlp_metrics import MetricPush, metrics_data, unit_of
from fleet.settings.telemetry import TelemetrySettings

ON = TelemetrySettings(metrics="otlp", metrics_interval_seconds=3600.0)


def converted(registry: CollectorRegistry) -> dict[str, Any]:
    data = metrics_data(registry, Resource({}), 1, 2)
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    return {metric.name: metric for metric in scope.metrics}


def test_a_counter_is_a_monotonic_sum_under_its_own_name() -> None:
    registry = CollectorRegistry()
    PromCounter("warmroute_picks_total", "Decisions", ["reason"], registry=registry).labels("warm").inc(3)
    metric = converted(registry)["warmroute_picks_total"]
    assert isinstance(metric.data, Sum)
    assert metric.data.is_monotonic
    assert metric.data.aggregation_temporality is AggregationTemporality.CUMULATIVE
    (point,) = metric.data.data_points
    assert (point.value, point.attributes) == (3.0, {"reason": "warm"})
    assert (point.start_time_unix_nano, point.time_unix_nano) == (1, 2)
    assert metric.description == "Decisions"


def test_a_gauge_may_go_down() -> None:
    registry = CollectorRegistry()
    PromGauge("warmroute_lag_seconds", "Lag", registry=registry).set(-2.5)
    metric = converted(registry)["warmroute_lag_seconds"]
    assert isinstance(metric.data, Gauge)
    assert metric.data.data_points[0].value == -2.5
    assert metric.unit == "s"


def test_a_histogram_keeps_its_buckets() -> None:
    registry = CollectorRegistry()
    made = PromHistogram("warmroute_x_seconds", "X", ["of"], buckets=(0.1, 1.0), registry=registry)
    for value in (0.05, 0.1, 0.5, 7.0):
        made.labels("a").observe(value)
    made.labels("b")
    metric = converted(registry)["warmroute_x_seconds"]
    assert isinstance(metric.data, Histogram)
    one, other = metric.data.data_points
    assert one.explicit_bounds == [0.1, 1.0]
    assert one.bucket_counts == [2, 1, 1]
    assert one.count == sum(one.bucket_counts) == 4
    assert one.sum == pytest.approx(7.65)
    assert other.bucket_counts == [0, 0, 0]


def test_nothing_of_the_page_is_missing_but_creation_times() -> None:
    registry = CollectorRegistry()
    PromCounter("a_total", "a", registry=registry)
    PromGauge("b", "b", registry=registry)
    PromHistogram("c", "c", registry=registry)
    assert set(converted(registry)) == {"a_total", "b", "c"}


@pytest.mark.parametrize(
    ("name", "unit"),
    [("x_seconds", "s"), ("x_bytes_total", "By"), ("x_ratio", "1"), ("x_celsius", "Cel"), ("x_total", "")],
)
def test_the_unit_is_read_off_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


class Exporter:
    """Holds the first push until it is let go."""

    def __init__(self, result: MetricExportResult = MetricExportResult.SUCCESS) -> None:
        self.result = result
        self.free = threading.Event()
        self.got: list[MetricsData] = []

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000) -> MetricExportResult:
        assert self.free.wait(20)
        self.got.append(metrics_data)
        return self.result

    def shutdown(self, timeout_millis: float = 30_000) -> None:
        self.free.set()


def lost(registry: CollectorRegistry, reason: str) -> float | None:
    return registry.get_sample_value("warmroute_metric_exports_lost_total", {"reason": reason})


async def test_while_an_export_is_under_way_later_ones_are_left_out() -> None:
    registry, exporter = CollectorRegistry(), Exporter()
    push = MetricPush(ON, "test", registry, exporter=lambda: exporter)
    push.start()
    assert push.push()
    assert not push.push()
    assert lost(registry, "still_exporting") == 1
    await push.close(0.01)
    assert exporter.got == [], "the end did not wait for a collector that does not answer"
    exporter.free.set()


async def test_failed_export_is_counted_and_last_state_pushed() -> None:
    registry, exporter = CollectorRegistry(), Exporter(MetricExportResult.FAILURE)
    exporter.free.set()
    push = MetricPush(ON, "test", registry, exporter=lambda: exporter)
    push.start()
    await push.close(20)
    assert len(exporter.got) == 1
    assert lost(registry, "export_failed") == 1


async def test_metrics_are_pushed_only_if_enabled() -> None:
    def refuse() -> Exporter:
        raise AssertionError

    push = MetricPush(TelemetrySettings(), "test", CollectorRegistry(), exporter=refuse)
    push.start()
    await push.close()


async def test_metrics_reach_an_otlp_collector(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    """With the headers that the standard variable asks for."""
    arrived: list[tuple[bytes, dict[str, Any]]] = []

    async def export(request: bytes, context: Any) -> bytes:
        arrived.append((request, dict(context.invocation_metadata())))
        return b""

    handler = grpc.method_handlers_generic_handler(
        "opentelemetry.proto.collector.metrics.v1.MetricsService",
        {"Export": grpc.unary_unary_rpc_method_handler(export)},
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"127.0.0.1:{unused_tcp_port}")
    await server.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{unused_tcp_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
    registry = CollectorRegistry()
    PromHistogram("warmroute_x_seconds", "X", buckets=(1.0,), registry=registry).observe(0.5)
    push = MetricPush(ON, "test", registry)
    push.start()
    await push.close(10)
    await server.stop(0)
    ((content, headers),) = arrived
    assert headers["x-key"] == "abc"
    request = metrics_service_pb2.ExportMetricsServiceRequest.FromString(content)
    metrics = request.resource_metrics[0].scope_metrics[0]
    by_name = {metric.name: metric for metric in metrics.metrics}
    point = by_name["warmroute_x_seconds"].histogram.data_points[0]
    assert list(point.bucket_counts) == [1, 0]
    assert by_name["warmroute_x_seconds"].unit == "s"
    assert not point.HasField("min")


@pytest.mark.parametrize("kind", ["silent", "refused"])
def test_a_dead_collector_does_not_hold_up_the_exit(kind: str) -> None:
    """Neither one that takes connections and answers nothing, nor one that is not there."""
    code = """
import asyncio, socket, sys
from prometheus_client import CollectorRegistry
from fleet.service.otlp_metrics import MetricPush
from fleet.service.serving import run
from fleet.settings.telemetry import TelemetrySettings
from fleet.service.telemetry import shut_down, tracer_provider
silent = socket.create_server(("127.0.0.1", 0))
port = silent.getsockname()[1]
if sys.argv[1] == "refused":
    silent.close()
import os
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
async def main():
    settings = TelemetrySettings(traces="otlp", metrics="otlp", metrics_interval_seconds=0.05)
    registry = CollectorRegistry()
    provider = tracer_provider(settings, "test", registry)
    push = MetricPush(settings, "test", registry)
    push.start()
    for _ in range(20_000):
        provider.get_tracer("x").start_span("y").end()
    await asyncio.sleep(0.3)
    print("began", flush=True)
    await asyncio.gather(push.close(), shut_down(provider))
    dropped = registry.get_sample_value("warmroute_spans_dropped_total", {"reason": "queue_full"})
    print(dropped, flush=True)
    return 0
raise SystemExit(run(main()))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "300"},
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()
        assert float(process.stdout.readline()) >= 10_000
