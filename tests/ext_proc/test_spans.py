"""Who is traced, what a pick's span tells, and how others continue from it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ext_proc.idempotency.guard import Idempotency
from ext_proc.pick.first_token import STEP_SECONDS
from ext_proc.processor import ExternalProcessor, RequestStream
from fleet.names import EXT_PROC_FILTER
from fleet.service.admin import Query
from fleet.store import FleetView
from tests.ext_proc.fake_envoy import FakeEnvoy, Seen, answer, body_message, with_mode
from tests.ext_proc.worlds import Clock, World, chat, pool_of, view_of

SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = SAMPLED[:-2] + "00"


class Stage:
    """A service whose draw is given; a request's attributes are set as Envoy sets them."""

    def __init__(self, draw: float, *, view: FleetView | None = None, **telemetry: Any) -> None:
        self.world = World(view or view_of(pool_of(count=12)), telemetry=telemetry)
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.service = ExternalProcessor(
            self.world.director,
            Idempotency(self.world.settings, self.world.registry, Clock(), "alone"),
            provider.get_tracer("test"),
            self.world.registry,
            clock=Clock(),
            draw=lambda: draw,
            wall=lambda: 1_700_000_000.0,
        )

    def play(self, body: bytes = chat("word " * 400), **attributes: str) -> dict[str, str]:
        stream = RequestStream(self.service)
        message = with_mode(body_message(body, end_of_stream=True), "BUFFERED")
        for name, value in attributes.items():
            message.attributes[EXT_PROC_FILTER].fields[NAMES[name]].string_value = value
        (reply,) = answer(stream, message)
        stream.close()
        fields = reply.dynamic_metadata.fields["warmroute"].struct_value.fields
        return {name: value.string_value for name, value in fields.items()}

    def spans(self) -> Any:
        return self.exporter.get_finished_spans()


NAMES = {"traceparent": "request.headers['traceparent']", "id": "request.id", "cluster": "xds.cluster_name"}


def test_a_sampled_clients_trace_goes_on_and_its_name_travels_on() -> None:
    stage = Stage(0.5, pick_sample_ratio=0.0)
    metadata = stage.play(traceparent=SAMPLED, id="req-1")
    (span,) = stage.spans()
    assert f"{span.context.trace_id:032x}" == SAMPLED[3:35]
    assert f"{span.parent.span_id:016x}" == SAMPLED[36:52]
    assert metadata["trace"] == f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"
    assert float(metadata["expected"]) == pytest.approx(
        span.attributes["warmroute.expected_seconds"], abs=1e-6
    )
    assert span.attributes["warmroute.request_id"] == "req-1"


@pytest.mark.parametrize("traceparent", ["", UNSAMPLED, "nonsense"])
def test_everybody_else_is_drawn_by_our_own_ratio(traceparent: str) -> None:
    """In a trace of its own, which the client's is linked to."""
    assert Stage(0.5, pick_sample_ratio=0.5).play(traceparent=traceparent).keys() == {
        "endpoint", "expected", "matched", "prefix", "prompt", "reason", "request", "serial",
    }  # fmt: skip
    stage = Stage(0.5, pick_sample_ratio=0.51)
    assert "trace" in stage.play(traceparent=traceparent)
    (span,) = stage.spans()
    assert span.parent is None
    linked = [f"{link.context.trace_id:032x}" for link in span.links]
    assert linked == ([UNSAMPLED[3:35]] if traceparent == UNSAMPLED else [])


def test_how_many_clients_may_ask_for_traces_is_a_setting() -> None:
    stage = Stage(0.5, client_sample_ratio=0.5, pick_sample_ratio=1.0)
    assert "trace" not in stage.play(traceparent=SAMPLED)
    assert "trace" in stage.play()


def test_the_fleets_view_raises_the_share() -> None:
    view = view_of(pool_of())
    raised = FleetView(view.membership, view.weights, view.signals, sampling_ratio_floor=0.6)
    assert "trace" in Stage(0.5, view=raised, pick_sample_ratio=0.0).play()
    assert "trace" not in Stage(0.5, view=view, pick_sample_ratio=0.0).play()


def test_span_lists_bounded_candidates_with_cost_terms() -> None:
    stage = Stage(0.0)
    metadata = stage.play()
    (span,) = stage.spans()
    events = [dict(event.attributes) for event in span.events]
    assert len(events) == 8, "of twelve"
    assert events[0]["warmroute.endpoint"] == metadata["endpoint"] == span.attributes["warmroute.endpoint"]
    assert [event["warmroute.rank"] for event in events] == list(range(1, 9))
    assert len({event["warmroute.endpoint"] for event in events}) == 8
    assert span.attributes["warmroute.candidates"] == 12


def test_span_predicts_first_token_with_its_step() -> None:
    """On idle engines: nothing is ahead, so the rest is cold prefill and the step with the first token."""
    stage = Stage(0.0)
    stage.play()
    (span,) = stage.spans()
    first = dict(span.events[0].attributes)
    assert first["warmroute.wait_seconds"] == 0.0
    median = first["warmroute.cold_seconds"] + STEP_SECONDS
    assert span.attributes["warmroute.expected_seconds"] == pytest.approx(median)
    assert span.attributes["warmroute.expected_p90_seconds"] > median


def test_a_fault_ends_the_span_as_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(0.0)
    monkeypatch.setattr(stage.service.director, "pick", None)
    stage.play(id="req-1")
    (span,) = stage.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes["warmroute.reason"] == "fault"
    (told,) = stage.service.decisions.view(Query(request="req-1"))["picks"]
    assert told["reason"] == "fault"


def test_in_header_modes_the_headers_themselves_are_read() -> None:
    stage = Stage(0.5, pick_sample_ratio=0.0)
    stream = RequestStream(stage.service)
    envoy = FakeEnvoy(partial(answer, stream), "BUFFERED")
    envoy.headers([("traceparent", SAMPLED.encode()), ("x-request-id", b"req-9")])
    envoy.body(chat("hi"), end_of_stream=True)
    stream.close()
    seen: Seen = envoy.seen
    assert seen.replies
    (span,) = stage.spans()
    assert f"{span.context.trace_id:032x}" == SAMPLED[3:35]
    assert span.attributes["warmroute.request_id"] == "req-9"


def test_decisions_are_remembered_by_request_and_endpoint() -> None:
    stage = Stage(0.9, pick_sample_ratio=0.0)
    chosen = stage.play(id="one", cluster="p")["endpoint"]
    stage.play(b"not json", id="two")
    newest, older = stage.service.decisions.view(Query())["picks"]
    assert (newest["request"], newest["reason"], newest["endpoint"]) == ("two", "not_json", None)
    assert (older["request"], older["pool"], older["endpoint"]) == ("one", "p", chosen)
    assert older["at"] == "2023-11-14T22:13:20.000+00:00"
    assert [entry["address"] for entry in older["considered"]] == [chosen, *older["fallbacks"]]
    assert older["considered"][0].keys() == {
        "address", "cost", "wait_seconds", "cold_seconds", "price_seconds", "penalty_seconds",
        "matched_blocks", "terms",
    }  # fmt: skip
    assert older["trace"] is None
    assert stage.service.decisions.view(Query(request="one"))["picks"] == [older]
    assert stage.service.decisions.view(Query(endpoint=chosen))["picks"] == [older]
    assert stage.service.decisions.view(Query(request="three"))["picks"] == []


def test_smaller_bound_keeps_the_newest_spans() -> None:
    stage = Stage(0.9, pick_sample_ratio=0.0)
    for number in range(1100):
        stage.play(b"x", id=str(number))
    assert stage.service.decisions.limit == 1024
    picks = stage.service.decisions.view(Query(limit=1000))["picks"]
    assert [entry["request"] for entry in picks[:2]] == ["1099", "1098"]
    stage.service.decisions.resize(2)
    assert [entry["request"] for entry in stage.service.decisions.view(Query())["picks"]] == ["1099", "1098"]


def test_a_clients_own_request_id_is_kept_only_in_part() -> None:
    stage = Stage(0.9, pick_sample_ratio=0.0)
    stage.play(id="x" * 10_000)
    (told,) = stage.service.decisions.view(Query())["picks"]
    assert told["request"] == "x" * 128
