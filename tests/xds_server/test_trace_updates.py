"""One trace for each weight update, up to each client's answer."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from fleet.endpoint import Locality
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from testing.signals import Load, Signal, table_of
from xds_server.discovery.client import Client
from xds_server.telemetry.trace import UpdateTraces
from xds_server.weights.weigh import WeightChange, WeightUpdate

ONE, TWO = (Client(name, "fleet", Locality()) for name in ("one", "two"))
SIGNALS = table_of(
    ["10.0.0.1:0"],
    {
        "10.0.0.1:0": Load(
            memory_used_ratio=Signal(0.93, 99.0, "scrape"), in_flight=Signal(3.0, 99.5, "traffic")
        )
    },
)


def update_of(count: int = 1, *, changed: bool = True) -> WeightUpdate:
    changes = tuple(
        WeightChange(f"10.0.0.1:{n}", 100, 40, "memory 0.93", SIGNALS.endpoint_values(0), 0.4, {"trust": 0.5})
        for n in range(count if changed else 0)
    )
    return WeightUpdate({f"10.0.0.1:{n}": 40 for n in range(count)}, frozenset(), changed, changes)


class Stage:
    """Traces with a clock that stands, in Unix nanoseconds."""

    def __init__(self, *, max_open: int = 10, off: bool = False) -> None:
        self.now = 1_000_000_000
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ALWAYS_OFF) if off else TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.registry = CollectorRegistry()
        self.version: dict[str, str | None] = {}
        self.traces = UpdateTraces(
            provider.get_tracer("test"),
            self.registry,
            lambda client: self.version.get(client.node_id, self.version.get("")),
            max_open=max_open,
            clock_ns=lambda: self.now,
        )

    def publish(self, version: str, update: WeightUpdate | None = None, **groups: str) -> None:
        """A tick in steps of a millisecond."""
        times = self.traces.tick()
        self.now += 1_000_000
        times.collected()
        self.now += 1_000_000
        times.computed()
        self.now += 1_000_000
        self.version = {"": version, **groups}
        self.traces.published(times, update or update_of(), version, SIGNALS, 100.0)

    def spans(self, name: str) -> list[Any]:
        return [span for span in self.exporter.get_finished_spans() if span.name == f"warmroute.{name}"]

    def outcomes(self) -> list[tuple[str, str, str]]:
        return [
            (
                span.attributes["warmroute.node"],
                span.attributes["warmroute.version"],
                span.attributes["warmroute.outcome"],
            )
            for span in self.spans("ack")
        ]

    def ended(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("warmroute_ack_spans_total", {"outcome": outcome})


def test_update_is_one_trace_with_its_steps() -> None:
    stage = Stage()
    stage.publish("v1")
    (root,) = stage.spans("weight_update")
    assert root.parent is None
    begin = 1_000_000_000
    for number, name in enumerate(("collect", "compute", "publish")):
        (span,) = stage.spans(name)
        assert span.parent.span_id == root.context.span_id
        assert span.context.trace_id == root.context.trace_id
        assert (span.start_time, span.end_time) == (begin, begin + 1_000_000), number
        begin += 1_000_000
    assert (root.start_time, root.end_time) == (1_000_000_000, begin)
    assert root.attributes["warmroute.eds_version"] == "v1"


def test_root_span_has_weights_signals_and_reason() -> None:
    stage = Stage()
    stage.publish("v1")
    (root,) = stage.spans("weight_update")
    (event,) = root.events
    assert dict(event.attributes) == {
        "warmroute.endpoint": "10.0.0.1:0",
        "warmroute.weight_before": 100,
        "warmroute.weight": 40,
        "warmroute.reason": "memory 0.93",
        "warmroute.score": 0.4,
        "warmroute.factor.trust": 0.5,
        "warmroute.memory_used_ratio": 0.93,
        "warmroute.in_flight": 3.0,
    }
    (collect,) = stage.spans("collect")
    assert collect.attributes["warmroute.signals.scrape"] == 1
    assert collect.attributes["warmroute.signals.traffic"] == 1
    assert collect.attributes["warmroute.youngest_signal_seconds"] == pytest.approx(0.5)
    assert collect.attributes["warmroute.oldest_signal_seconds"] == pytest.approx(1.0)


def test_endpoint_events_are_bounded_and_counted() -> None:
    stage = Stage()
    stage.publish("v1", update_of(200))
    (root,) = stage.spans("weight_update")
    assert len(root.events) == 128
    assert root.attributes["warmroute.endpoints_changed"] == 200
    assert root.attributes["warmroute.changes_left_out"] == 72


def test_client_span_lasts_from_push_to_ack() -> None:
    stage = Stage()
    stage.publish("v1")
    stage.now += 5
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    stage.traces.pushed(ONE, TYPE_CLUSTER, "c1")
    stage.now += 7
    stage.traces.acked(ONE, TYPE_CLUSTER, "c1")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v1")
    (root,), (ack,) = stage.spans("weight_update"), stage.spans("ack")
    assert ack.parent.span_id == root.context.span_id
    assert ack.end_time - ack.start_time == 7
    assert ack.start_time - root.end_time == 5
    assert ack.status.status_code is StatusCode.OK
    assert stage.outcomes() == [("one", "v1", "ack")]
    assert ack.attributes["warmroute.type"] == TYPE_ENDPOINT


def test_nack_ends_the_span_with_its_message() -> None:
    stage = Stage()
    stage.publish("v1")
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    stage.traces.nacked(ONE, TYPE_ENDPOINT, "v1", "weight 0")
    (ack,) = stage.spans("ack")
    assert (ack.status.status_code, ack.status.description) == (StatusCode.ERROR, "weight 0")
    assert stage.outcomes() == [("one", "v1", "nack")]


def test_newer_push_overtakes_the_older() -> None:
    stage = Stage()
    stage.publish("v1")
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    stage.publish("v2")
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v2")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v1")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v2")
    assert stage.outcomes() == [("one", "v1", "superseded"), ("one", "v2", "ack")]
    first, second = stage.spans("weight_update")
    old, new = stage.spans("ack")
    assert old.parent.span_id == first.context.span_id
    assert new.parent.span_id == second.context.span_id


def test_ack_before_the_record_of_its_push_counts() -> None:
    stage = Stage()
    stage.publish("v1")
    published = stage.now
    stage.now += 4
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v1")
    stage.now += 1
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    (ack,) = stage.spans("ack")
    assert (ack.start_time, ack.end_time) == (published, published + 4)
    assert stage.outcomes() == [("one", "v1", "ack")]


def test_groups_have_their_own_versions_of_an_update() -> None:
    stage = Stage()
    stage.publish("v1", two="v1-near-two")
    for client, version in ((ONE, "v1"), (TWO, "v1-near-two")):
        stage.traces.pushed(client, TYPE_ENDPOINT, version)
        stage.traces.acked(client, TYPE_ENDPOINT, version)
    (root,) = stage.spans("weight_update")
    assert {span.parent.span_id for span in stage.spans("ack")} == {root.context.span_id}
    assert stage.outcomes() == [("one", "v1", "ack"), ("two", "v1-near-two", "ack")]


def test_repeated_content_belongs_to_its_newest_update() -> None:
    stage = Stage()
    for version in ("a", "b", "a"):
        stage.publish(version)
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "a")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "a")
    roots, (ack,) = stage.spans("weight_update"), stage.spans("ack")
    assert ack.parent.span_id == roots[2].context.span_id


def test_unchanged_snapshot_makes_no_trace() -> None:
    stage = Stage()
    stage.publish("v1")
    stage.publish("v2", update_of(changed=False))
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v2")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v2")
    assert len(stage.spans("weight_update")) == 1
    assert stage.spans("ack") == []


def test_leaving_client_ends_its_span() -> None:
    stage = Stage()
    stage.publish("v1")
    for client in (ONE, TWO):
        stage.traces.pushed(client, TYPE_ENDPOINT, "v1")
    stage.traces.closed(ONE, {TYPE_CLUSTER: 1})
    assert stage.outcomes() == []
    stage.traces.closed(ONE, {TYPE_ENDPOINT: 1})
    assert stage.outcomes() == [("one", "v1", "gone")]


def test_silent_client_ends_by_a_timeout() -> None:
    stage = Stage()
    stage.publish("v1")
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    stage.now += 29_999_999_999
    stage.traces.tick()
    assert stage.outcomes() == []
    stage.now += 1
    stage.traces.tick()
    assert stage.outcomes() == [("one", "v1", "timeout")]
    assert stage.spans("ack")[0].status.status_code is StatusCode.ERROR


def test_late_client_has_no_part_in_an_old_update() -> None:
    stage = Stage()
    stage.publish("v1")
    stage.now += 30_000_000_001
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v1")
    assert stage.spans("ack") == []


def test_open_spans_are_bounded_and_the_rest_counted() -> None:
    stage = Stage(max_open=3)
    stage.publish("v1")
    for number in range(10):
        stage.traces.pushed(Client(f"n{number}", "fleet", Locality()), TYPE_ENDPOINT, "v1")
    assert stage.ended("untraced") == 7
    for number in range(10):
        stage.traces.acked(Client(f"n{number}", "fleet", Locality()), TYPE_ENDPOINT, "v1")
    assert stage.ended("ack") == 3


def test_without_traces_nothing_is_kept() -> None:
    stage = Stage(off=True)
    stage.publish("v1")
    stage.traces.pushed(ONE, TYPE_ENDPOINT, "v1")
    stage.traces.acked(ONE, TYPE_ENDPOINT, "v1")
    assert stage.ended("ack") == 0
    assert stage.exporter.get_finished_spans() == ()
