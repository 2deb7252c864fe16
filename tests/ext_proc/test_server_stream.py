"""One stream without its transport: what is counted, traced and logged, and what a fault does."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from ext_proc.idempotency.guard import Idempotency
from ext_proc.pick import Reason
from ext_proc.processor import ExternalProcessor, RequestStream
from tests.ext_proc.fake_envoy import (
    DUPLEX,
    FakeEnvoy,
    Seen,
    answer,
    body_message,
    headers_message,
    with_mode,
)
from tests.ext_proc.worlds import Clock, World, chat, pool_of, view_of

MARKER = "MARKER-7f3a9c"


def largest(root: object, apart: set[int]) -> int:
    """Return the length of the longest string that an object keeps, by way of its own parts."""
    longest, waiting, visited = 0, [root], set(apart)
    while waiting:
        each = waiting.pop()
        if id(each) in visited or isinstance(each, type | ModuleType | FunctionType):
            continue
        visited.add(id(each))
        if isinstance(each, str | bytes):
            longest = max(longest, len(each))
        waiting += gc.get_referents(each)
    return longest


class Stage:
    """A service over a small fleet, with what it counts and traces in reach."""

    def __init__(self, *, sample_ratio: float = 1.0, **sections: Any) -> None:
        self.world = World(view_of(pool_of()), telemetry={"pick_sample_ratio": sample_ratio}, **sections)
        self.spans = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.clock = Clock()
        self.service = ExternalProcessor(
            self.world.director,
            Idempotency(self.world.settings, self.world.registry, self.clock, "alone"),
            provider.get_tracer("test"),
            self.world.registry,
            clock=self.clock,
            draw=lambda: 0.5,
        )

    def value(self, name: str, **labels: str) -> float:
        return self.world.registry.get_sample_value(name, labels) or 0.0

    def picks(self, reason: str) -> float:
        return self.value("warmroute_picks_total", reason=reason)

    def in_flight(self) -> int:
        return sum(entry.in_flight for entry in self.world.director.traffic.snapshot())

    def play(self, body: bytes, mode: str = "BUFFERED", *, headers: bool = True) -> Seen:
        stream = RequestStream(self.service)
        envoy = FakeEnvoy(partial(answer, stream), mode)
        if headers:
            envoy.headers()
        envoy.body(body, end_of_stream=True)
        stream.close()
        return envoy.finish(body)


def test_a_pick_is_in_flight_until_the_stream_closes() -> None:
    stage = Stage()
    stream = RequestStream(stage.service)
    answer(stream, with_mode(body_message(chat("hi"), end_of_stream=True), "BUFFERED"))
    assert (stage.in_flight(), stage.value("warmroute_ext_proc_streams")) == (1, 1)
    stream.close()
    assert (stage.in_flight(), stage.value("warmroute_ext_proc_streams")) == (0, 0)
    assert stage.picks("cold") == 1


@pytest.mark.parametrize(("response_mode", "counted"), [("NONE", 0), ("STREAMED", 1)])
def test_full_duplex_is_in_flight_if_stream_lasts(response_mode: str, counted: int) -> None:
    """Envoy ends such a stream early, unless the response's body is processed too."""
    stage = Stage()
    stream = RequestStream(stage.service)
    answer(stream, with_mode(body_message(chat("hi"), end_of_stream=True), DUPLEX, response_mode))
    assert stage.picks("cold") == 1
    assert stage.in_flight() == counted
    stream.close()
    assert stage.in_flight() == 0


def test_full_duplex_burst_is_spread() -> None:
    """Nothing counts as in flight there, so the backlog fades with time alone."""
    stage = Stage()
    chosen = Counter(
        (stage.play(chat(f"{number} " + "word " * 5000), DUPLEX).destination or "").split(",")[0]
        for number in range(40)
    )
    assert len(chosen) == 4
    assert max(chosen.values()) <= 14


def test_no_pick_counts_its_reason_and_no_traffic() -> None:
    stage = Stage()
    assert stage.play(b"not json").reason == "not_json"
    assert stage.picks("not_json") == 1
    assert stage.world.director.traffic.snapshot() == []


def test_every_reason_is_there_from_the_start() -> None:
    text = generate_latest(Stage().world.registry).decode()
    for reason in Reason:
        assert f'warmroute_picks_total{{reason="{reason}"}} 0.0' in text


@pytest.mark.parametrize("mode", ["BUFFERED", DUPLEX])
@pytest.mark.parametrize("headers", [True, False])
def test_over_the_limit_of_streams_requests_go_unrouted(mode: str, headers: bool) -> None:
    """Never refused: answered, counted, and without a pick."""
    stage = Stage(limits={"ext_proc_streams": 1})
    open_one = RequestStream(stage.service)
    seen = stage.play(chat("hi"), mode, headers=headers)
    assert (seen.destination, seen.reason) == (None, "over_limit")
    assert stage.picks("over_limit") == 1
    open_one.close()
    assert stage.play(chat("hi"), mode).destination is not None


@pytest.mark.parametrize("fails", [False, True])
def test_what_slow_uploads_hold_is_bounded_and_given_back(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """However their streams end; who comes when it is full gets a pick by what has come."""
    stage = Stage(limits={"held_body_bytes": 100_000})
    if fails:
        monkeypatch.setattr(stage.world.director, "pick", lambda _: 1 / 0)
    streams = [RequestStream(stage.service) for _ in range(9)]
    for stream in streams:
        answer(stream, with_mode(headers_message(), DUPLEX))
        answer(stream, body_message(b'{"prompt":"' + b"a" * 30_000, end_of_stream=False))
    assert stage.value("warmroute_ext_proc_held_bytes") == 3 * 30_011
    assert stage.picks("fault" if fails else "cold") + stage.picks("warm") == 6
    for stream in streams:
        stream.close()
    assert stage.value("warmroute_ext_proc_held_bytes") == 0


@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", DUPLEX])
def test_a_fault_of_routing_is_counted_and_answered_unrouted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """The text of the exception may hold the prompt, so only its kind and place are logged."""
    stage = Stage()

    def fail(*_args: Any, **_named: Any) -> None:
        raise ValueError(MARKER)

    monkeypatch.setattr(stage.world.director, "pick", fail)
    with caplog.at_level(logging.DEBUG):
        for _ in range(3):
            seen = stage.play(chat(MARKER * 50), mode)
            assert (seen.destination, seen.reason) == (None, "fault")
    assert stage.value("warmroute_ext_proc_faults_total", kind="ValueError") == 3
    assert stage.picks("fault") == 3
    assert len(caplog.records) == 1, "one a minute and kind"
    assert MARKER not in caplog.text
    assert stage.in_flight() == 0


def test_a_fault_is_logged_again_after_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    monkeypatch.setattr(stage.world.director, "pick", None)
    for step in (0.0, 59.0, 2.0):
        stage.clock.now += step
        stage.play(chat("hi"))
    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("mode", "step"), [("BUFFERED", "started"), ("BUFFERED", "count"), (DUPLEX, "count")]
)
def test_a_fault_in_counting_does_not_cost_the_pick(
    monkeypatch: pytest.MonkeyPatch, mode: str, step: str
) -> None:
    """The reply is built by then; in full duplex the body has been let go."""
    stage = Stage()

    def fail(*_args: Any, **_named: Any) -> None:
        raise RuntimeError

    monkeypatch.setattr(stage.world.director if step == "started" else stage.service, step, fail)
    assert stage.play(chat("hi"), mode).destination is not None
    assert stage.value("warmroute_ext_proc_faults_total", kind="RuntimeError") == 1
    assert stage.in_flight() == 0


def test_streamed_mode_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    for _ in range(3):
        assert stage.play(b"{}", "STREAMED").reason == "streamed"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "STREAMED" in caplog.text


def test_observability_mode_counts_nothing() -> None:
    stage = Stage()
    stream = RequestStream(stage.service)
    message = with_mode(body_message(chat("hi"), end_of_stream=True), "BUFFERED")
    message.observability_mode = True
    assert answer(stream, message) == []
    stream.close()
    assert sum(stage.picks(reason.value) for reason in Reason) == 0
    assert stage.world.director.traffic.snapshot() == []


def test_a_sampled_pick_is_a_span_that_tells_the_decision() -> None:
    stage = Stage()
    stage.play(chat("word " * 400))
    seen = stage.play(chat("word " * 400))
    span = stage.spans.get_finished_spans()[-1]
    assert span.name == "warmroute.pick"
    attributes: dict[str, Any] = dict(span.attributes or {})
    assert attributes["warmroute.reason"] == "warm"
    assert attributes["warmroute.endpoint"] == seen.metadata["warmroute"]["endpoint"]
    assert attributes["warmroute.candidates"] == 4
    assert attributes["warmroute.matched_share"] == 1.0
    assert attributes["warmroute.expected_seconds"] > 0
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time >= span.start_time


@pytest.mark.parametrize(("ratio", "spans"), [(0.0, 0), (0.5, 0), (0.51, 2)])
def test_only_the_sampled_share_makes_spans(ratio: float, spans: int) -> None:
    stage = Stage(sample_ratio=ratio)
    stage.play(chat("hi"))
    stage.play(b"not json")
    assert len(stage.spans.get_finished_spans()) == spans


@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX])
def test_prompt_text_is_in_no_log_span_metric_or_reply_header(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Model and salt of a client are no better: neither is repeated."""
    stage = Stage()
    bodies = [
        chat(MARKER * 100),
        chat("hi", model=MARKER),
        chat("hi", cache_salt=MARKER),
        MARKER.encode() * 40,
        b'{"model":"m","prompt":"' + MARKER.encode(),
        b'{"model":"m","model":"' + MARKER.encode() + b'","prompt":"x"}',
    ]
    with caplog.at_level(logging.DEBUG):
        for body in bodies:
            seen = stage.play(body, mode)
            assert MARKER not in str(seen.metadata)
            assert MARKER not in str(seen.set_headers)
    assert MARKER not in caplog.text
    assert MARKER not in generate_latest(stage.world.registry).decode()
    spans = stage.spans.get_finished_spans()
    assert len(spans) == len(bodies)
    assert not any(MARKER in span.to_json() for span in spans)


def test_headers_without_body_are_traced_without_duration() -> None:
    stage = Stage()
    stream = RequestStream(stage.service)
    answer(stream, with_mode(headers_message(end_of_stream=True), "BUFFERED"))
    stream.close()
    assert stage.picks("no_body") == 1
    assert stage.value("warmroute_pick_duration_seconds_count") == 0


def test_a_stream_that_has_its_pick_keeps_no_body() -> None:
    """It lasts as long as its response, and there may be thousands."""
    stage = Stage()
    stream = RequestStream(stage.service)
    answer(stream, with_mode(body_message(chat("long " * 40_000), end_of_stream=True), "BUFFERED"))
    assert stage.in_flight() == 1
    assert largest(stream, apart={id(stage.service), id(stage.world)}) < 1000
    stream.close()
