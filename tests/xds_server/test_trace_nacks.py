"""Refusals as spans."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fleet.endpoint import Locality
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from xds_server.discovery.client import Client
from xds_server.telemetry.trace import TracedNacks


def test_refused_content_makes_one_span() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = TracedNacks(provider.get_tracer("test"))
    first, second = (Client(name, "fleet", Locality()) for name in ("one", "two"))
    observer.acked(first, TYPE_ENDPOINT, "v0")
    for client in (first, second):
        observer.nacked(client, TYPE_ENDPOINT, "v1", "weight 0")
    observer.nacked(second, TYPE_CLUSTER, "v1", "no such policy")
    events = [
        (span.name, dict(span.attributes or {}), span.status.description)
        for span in exporter.get_finished_spans()
    ]
    assert events == [
        (
            "warmroute.nack",
            {"warmroute.node": "one", "warmroute.type": TYPE_ENDPOINT, "warmroute.version": "v1"},
            "weight 0",
        ),
        (
            "warmroute.nack",
            {"warmroute.node": "two", "warmroute.type": TYPE_CLUSTER, "warmroute.version": "v1"},
            "no such policy",
        ),
    ]


def test_memory_of_nacks_is_bounded() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    observer = TracedNacks(provider.get_tracer("test"))
    client = Client("one", "fleet", Locality())
    for number in range(1025):
        observer.nacked(client, TYPE_ENDPOINT, f"v{number}", "no")
    observer.nacked(client, TYPE_ENDPOINT, "v1024", "no")
    observer.nacked(client, TYPE_ENDPOINT, "v0", "no")
    assert len(exporter.get_finished_spans()) == 1026
