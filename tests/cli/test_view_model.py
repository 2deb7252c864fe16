"""The admin API's answers become values; whatever a server leaves out is unknown and stops nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from warmroute.cli.view.model import (
    ENDPOINTS,
    KV_EVENTS,
    SKEW,
    STATUS,
    WEIGHTS,
    brief,
    kv_event_counts,
    kv_event_notes,
    picture,
)

VERDICT = {"reason": "queue 41", "share": 0.6}
NAMES = ("address", "pool", "weight", "load", "endpoints", "kind", "share", "value", "picks")


def test_documented_fields_are_read(endpoints: dict[str, Any], status: dict[str, Any]) -> None:
    now = picture({ENDPOINTS: endpoints, STATUS: status})
    first, second, third = now.rows
    assert (first.address, first.pool, first.weight, first.in_flight) == ("10.0.0.1:8000", "chat", 300, 7)
    assert first.share == pytest.approx(0.75), "of its pool"
    assert first.health == "ok"
    assert second.faults == ("stalled", "gpu=0.4", "trust=0.50")
    assert (third.weight, third.share, third.health, third.reason) == (
        None,
        None,
        "not ready",
        "not asked yet",
    )
    assert now.pools == ("chat", "code")
    assert now.status["nacks"] == 1


def test_unreachable_not_ready_or_unhealthy_rows_do_not_serve(endpoints: dict[str, Any]) -> None:
    listed = endpoints["endpoints"]
    weights = {"weights": {listed[0]["address"]: {"unhealthy": False}}}

    def serving() -> list[bool]:
        return [row.serves for row in picture({ENDPOINTS: endpoints, WEIGHTS: weights}).rows]

    assert serving() == [True, False, False], "one is stalled, one is not let in"
    listed[1]["load"] = {"gpu_health_score": 0.4}
    assert serving() == [True, True, False], "a fault that costs weight alone"
    listed[1]["load"] = {"reachable": 0.0, "ready": 0.0}
    assert serving() == [True, False, False]
    assert picture({ENDPOINTS: endpoints}).rows[1].health == "unreachable"
    weights["weights"][listed[0]["address"]]["unhealthy"] = True
    assert serving() == [False, False, False]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("GET http://127.0.0.1:1/v1/models: connection refused; start the engine", "connection refused"),
        ("GET http://127.0.0.1:1/v1/models: no connection in time; look at", "no connection in time"),
        ("GET https://[::1]:1/health: no whole answer (TimeoutError)", "no whole answer (TimeoutError)"),
        ("GET http://a:1/health was answered 503; its model may still be loading", "503"),
        (
            "GET http://a:1/v1/models was answered 200, and lists no model of 'm'; mend",
            "lists no model of 'm'",
        ),
        ("GET http://a:1/v1/models was answered 404, and its metrics page", "404, and its metrics page"),
        ("by an operator until 2026-11-30T08:00:00Z", "until 2026-11-30T08:00:00Z"),
        ("silent zone 0.93", "silent zone 0.93"),
    ],
)
def test_a_reasons_cause_comes_first_where_there_is_little_room(reason: str, cause: str) -> None:
    assert brief(reason) == cause


def test_a_signal_of_zero_is_a_value_and_null_is_none(endpoints: dict[str, Any]) -> None:
    first, second, _ = picture({ENDPOINTS: endpoints}).rows
    assert first.signal("queue_depth") == 0
    assert second.signal("running") is None
    assert second.signal("first_byte_p99_seconds", "latency_p99_seconds") == 3.4


def test_signals_may_carry_their_ages() -> None:
    load = {"queue_depth": {"value": 3, "age_seconds": 1.5, "source": "scrape"}, "running": {"value": None}}
    (row,) = picture({ENDPOINTS: {"endpoints": [{"address": "a:1", "load": load}]}}).rows
    assert row.signal("queue_depth") == 3
    assert row.signal("running") is None


@pytest.mark.parametrize(
    "weights",
    [
        {"weights": [{"address": "10.0.0.1:8000", **VERDICT}]},
        {"pools": [{"name": "chat", "endpoints": [{"address": "10.0.0.1:8000", **VERDICT}]}]},
        {"weights": {"10.0.0.1:8000": VERDICT}},
    ],
)  # fmt: skip
def test_weights_fill_in_a_missing_reason_and_share(weights: Any) -> None:
    document = {"endpoints": [{"address": "10.0.0.1:8000", "pool": "chat"}]}
    (row,) = picture({ENDPOINTS: document, WEIGHTS: weights}).rows
    assert (row.reason, row.share) == ("queue 41", 0.6)


def test_a_share_is_that_of_the_weights_beside_it() -> None:
    """Whatever a server of another version calls a share."""
    listed = [{"address": f"10.0.0.{at}:8000", "pool": "chat", "weight": 100 * at} for at in (1, 3)]
    documents = {ENDPOINTS: {"endpoints": listed}, WEIGHTS: {"weights": {"10.0.0.1:8000": VERDICT}}}
    assert [row.share for row in picture(documents).rows] == [0.25, 0.75]


def test_incomplete_kv_events_are_notes() -> None:
    document = {
        "10.0.0.1:80": {"freshness": "whole", "blocks": 7, "ranks": []},
        "10.0.0.2:80": {"freshness": "stale", "cause": "not connected: \x1b[31mno", "ranks": []},
    }
    now = picture({KV_EVENTS: document})
    assert kv_event_counts(now.kv_events) == {"whole": 1, "stale": 1}
    note = "KV events of 10.0.0.2:80 are stale: not connected: ?[31mno"
    assert kv_event_notes(now.kv_events) == [note]
    for odd in (None, {}, {"10.0.0.1:80": 3}):
        assert kv_event_notes(picture({KV_EVENTS: odd}).kv_events) == []


def test_skew_is_shown_in_lines() -> None:
    """Those that last; for people, without the ones that are over."""
    event = {
        "kind": "long_tail",
        "pool": "chat",
        "address": "10.0.0.1:8000",
        "evidence": {"p99_seconds": 4.1},
    }
    document = {
        "active": [event, {**event, "address": None}],
        "recent": [{**event, "kind": "batch_collapse"}],
    }
    lines = ("long tail 10.0.0.1:8000: p99_seconds 4.1", "long tail chat: p99_seconds 4.1")
    assert picture({SKEW: document}).skew == lines


def test_text_from_afar_does_not_steer_the_terminal() -> None:
    document = {"endpoints": [{"address": "a\x1b[2J:1", "reason": "x\r\x07y", "weight": 1}]}
    (row,) = picture({ENDPOINTS: document}).rows
    assert (row.address, row.reason) == ("a?[2J:1", "x??y")


json_values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=5),
    lambda inner: (
        some.lists(inner, max_size=3)
        | some.dictionaries(
            some.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@given(json_values, json_values, json_values)
def test_no_answer_breaks_the_picture(one: Any, other: Any, third: Any) -> None:
    """A newer or an older server may send anything."""
    made = picture({ENDPOINTS: one, STATUS: other, WEIGHTS: third, SKEW: third})
    for row in made.rows:
        assert row.share is None or row.share == row.share
