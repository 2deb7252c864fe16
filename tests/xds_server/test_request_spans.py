"""What became of a traced request, and how wrong its prediction was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

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
        self.registry = CollectorRegistry()
        self.spans = RequestSpans(provider.get_tracer("test"), self.registry)

    def note(self, **changed: Any) -> Any:
        self.spans.note(replace(GOOD, **changed))
        return self.exporter.get_finished_spans()[-1:]

    def errors(self, direction: str) -> tuple[float | None, float | None]:
        name = "warmroute_ttft_prediction_error_seconds"
        labels = {"direction": direction}
        count, total = (self.registry.get_sample_value(f"{name}_{part}", labels) for part in ("count", "sum"))
        return count, total


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
    assert attributes["warmroute.prediction_error_seconds"] == pytest.approx(0.3)
    assert attributes["warmroute.expected_seconds"] == 0.2
    assert attributes["warmroute.first_byte_seconds"] == 0.5
    assert attributes["http.response.status_code"] == 200
    assert [event.timestamp for event in span.events] == [1_000_500_000_000]
    assert stage.errors("late") == (1.0, pytest.approx(0.3))
    assert stage.errors("early") == (0.0, 0.0)


def test_untraced_requests_count_their_error() -> None:
    stage = Stage()
    assert stage.note(metadata={"expected": "0.6"}) == ()
    assert stage.errors("early") == (1.0, pytest.approx(0.1))


@pytest.mark.parametrize(
    "changed",
    [
        {"first_byte_seconds": 2.0},
        {"first_byte_seconds": None},
        {"duration_seconds": None},
        {"address": "10.0.0.2:80"},
        {"attempts": 2},
        {"status": 429},
        {"flags": ("DC",)},
        {"metadata": {"trace": TRACE}},
        {"metadata": {"trace": TRACE, "expected": "nan"}},
        {"metadata": {"trace": TRACE, "expected": "-1"}},
        {"metadata": {"trace": TRACE, "expected": "soon"}},
    ],
    ids=str,
)
def test_incomparable_times_make_a_span_without_error(changed: dict[str, Any]) -> None:
    """Among them an answer in one piece, whose first byte is its last."""
    stage = Stage()
    (span,) = stage.note(**changed)
    assert "warmroute.prediction_error_seconds" not in span.attributes
    assert stage.errors("late") == stage.errors("early") == (0.0, 0.0)


def test_host_failure_is_an_error_of_the_span() -> None:
    (span,) = Stage().note(status=503, flags=("UF",), first_byte_seconds=None)
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "UF"


@pytest.mark.parametrize("trace", ["", "x", TRACE[:-2] + "00"])
def test_untraced_request_has_no_span(trace: str) -> None:
    assert Stage().note(metadata={"trace": trace}) == ()
