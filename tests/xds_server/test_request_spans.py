"""What became of a traced request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from xds_server.access_log.finished import Finished
from xds_server.telemetry.request_spans import RequestSpans

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
GOOD = Finished(
    address="10.0.0.1:80",
    picked="10.0.0.1:80",
    cluster="p",
    request_id="r1",
    started_at=1000.0,
    first_byte_seconds=0.5,
    duration_seconds=2.0,
    status=200,
    flags=(),
    attempts=1,
    metadata={"trace": TRACE, "expected": "0.200000", "reason": "warm"},
)


class Stage:
    """Spans and counts, in reach."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.spans = RequestSpans(provider.get_tracer("test"))

    def note(self, **changed: Any) -> Any:
        self.spans.note(replace(GOOD, **changed))
        return self.exporter.get_finished_spans()[-1:]


def test_end_of_a_websocket_is_no_error() -> None:
    """Envoy flags as broken what the server has ended by right."""
    (span,) = Stage().note(status=101, flags=("UC",))
    assert span.status.status_code is StatusCode.UNSET


def test_span_is_a_child_of_its_pick() -> None:
    stage = Stage()
    (span,) = stage.note()
    assert span.name == "warmroute.request"
    assert f"{span.context.trace_id:032x}" == TRACE[3:35]
    assert f"{span.parent.span_id:016x}" == TRACE[36:52]
    assert (span.start_time, span.end_time) == (1_000_000_000_000, 1_002_000_000_000)
    attributes = dict(span.attributes)
    assert attributes["warmroute.expected_seconds"] == 0.2
    assert attributes["warmroute.first_byte_seconds"] == 0.5
    assert attributes["http.response.status_code"] == 200
    assert [event.timestamp for event in span.events] == [1_000_500_000_000]


@pytest.mark.parametrize("expected", ["", "nan", "-1", "soon"])
def test_expected_that_is_no_time_is_left_out(expected: str) -> None:
    (span,) = Stage().note(metadata={"trace": TRACE, "expected": expected})
    assert "warmroute.expected_seconds" not in span.attributes


def test_host_failure_is_an_error_of_the_span() -> None:
    (span,) = Stage().note(status=503, flags=("UF",), first_byte_seconds=None)
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "UF"


@pytest.mark.parametrize("trace", ["", "x", TRACE[:-2] + "00"])
def test_untraced_request_has_no_span(trace: str) -> None:
    assert Stage().note(metadata={"trace": trace}) == ()
