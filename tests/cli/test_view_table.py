"""How the picture is drawn: on any width whole columns, unknown as a dash, trouble in plain sight."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from warmroute.cli.view.columns import (
    COLUMNS,
    P99,
    SORTABLE,
    UNKNOWN,
    WEIGHT,
    History,
    duration,
    matching,
    ordered,
    sparkline,
)
from warmroute.cli.view.keys import Screen
from warmroute.cli.view.model import ENDPOINTS, SKEW, STATUS, WEIGHTS, EndpointRow, Picture, picture
from warmroute.cli.view.table import Frame, live, once, page_rows

URL = "http://127.0.0.1:19000"


@pytest.fixture
def now(endpoints: dict[str, Any], status: dict[str, Any]) -> Picture:
    skew = {"active": [{"kind": "long_tail", "pool": "chat", "evidence": {"p99_over_p50": 4.1}}]}
    return picture({ENDPOINTS: endpoints, STATUS: status, SKEW: skew})


def drawn(content: Any, columns: int, *, colours: bool = False, **options: Any) -> str:
    output = io.StringIO()
    console = Console(file=output, width=columns, force_terminal=colours, highlight=False, **options)
    console.print(content)
    return output.getvalue()


def screenful(now: Picture | None, columns: int, rows: int = 40, **options: Any) -> str:
    return drawn(live(Frame(URL, now, **options), columns, rows), columns)


def test_a_wide_terminal_shows_everything(now: Picture) -> None:
    text = screenful(now, 220)
    for part in (
        *("weight updates 4", "pushes 9", "ACKs 8", "NACKs 1", "chat 1/2", "code 0/1"),
        *("warm 75 75%", "cold 20 20%", "no pick  not_json 5 5%", "long tail chat: p99_over_p50 4.1"),
        *("stalled,gpu=0.4,trust=0.50", "memory 0.97", "3.40s", "234ms", "97%", "2.5%", "75.0%", "██████"),
    ):
        assert part in text, part
    assert "fault" not in text, "reasons without a pick are left out"


@pytest.mark.parametrize("columns", [210, 160, 120, 100, 80, 60, 40])
def test_no_line_is_cut_or_broken_and_what_matters_most_stays(now: Picture, columns: int) -> None:
    lines = [line.rstrip() for line in screenful(now, columns).splitlines()]
    assert all(len(line) <= columns for line in lines)
    assert "…" not in "".join(lines)
    (row,) = [line for line in lines if line.startswith("10.0.0.2:8000")]
    assert "100" in row
    assert "3.40s" in row
    assert ("stalled" in row) == (columns >= 80)


def test_unknown_is_a_dash_and_never_a_zero(now: Picture) -> None:
    text = drawn(once(now, 200, Screen()), 200)
    (row,) = [line for line in text.splitlines() if line.startswith("10.0.0.3:8000")]
    assert row.split()[1:] == [
        *("code", "probing", UNKNOWN, UNKNOWN, "0"),
        *[UNKNOWN] * 8,
        *("not", "ready", "not", "asked", "yet"),
    ]


@pytest.mark.parametrize("columns", [200, 160, 120, 100, 80, 60])
def test_why_an_endpoint_has_no_traffic_is_shown_at_any_width(columns: int) -> None:
    """Neither a long reason nor a long health pushes out the state or the distinct part of an address."""
    end = "2026-11-30T08:00:00.000+00:00"
    addresses = [f"127.0.0.1:{port}" for port in (9101, 9102, 9100)]
    why = "GET http://127.0.0.1:9100/v1/models: connection refused; start the engine, or mend its address"
    load = {"queue_depth": 3.0, "running": 8.0, "memory_used_ratio": 0.5, "latency_p50_seconds": 0.1}
    down = {**load, "reachable": 0.0, "ready": 0.0, "prefix_hit_ratio": 0.5, "latency_p99_seconds": 0.5}
    pairs = zip(
        addresses, ("admitted", "drained", "probing"), (1, None, None), (down, load, None), strict=True
    )
    listed = [
        {"address": a, "pool": "chat", "state": state, "weight": weight, "load": of}
        for a, state, weight, of in pairs
    ]
    listed[2]["not_ready"] = why
    weights = {
        "weights": {addresses[0]: {"reason": "unreachable", "unhealthy": True}},
        "drained": [{"endpoint": addresses[1], "until": end, "in_force": True}],
    }
    now = picture({ENDPOINTS: {"endpoints": listed}, WEIGHTS: weights})
    text = screenful(now, columns)
    assert "chat 0/3" in text
    killed, drained, never = (
        next(line for line in text.splitlines() if line.startswith(address)) for address in addresses
    )
    assert "unreachable" in killed
    assert "drained" in drained
    assert "probing" in never
    assert "not ready" in never
    heading = next(line for line in text.splitlines() if line.startswith("Endpoint")).split()
    if columns >= 80:
        assert {"Queue", "Flight"} <= set(heading)
    if columns >= 120:
        assert {"KV", "Share", "Err", "Reason"} <= set(heading)
        assert "connection refused" in never
        assert "until 2026-11-30T08" in drained
    if columns >= 160:
        assert {"Run", "P50", "Hits"} <= set(heading)


def test_once_is_one_line_an_endpoint_with_a_heading(now: Picture) -> None:
    lines = drawn(once(now, 200, Screen()), 200).splitlines()
    assert len(lines) == 4
    columns = lines[0].split()
    assert columns[:4] == ["Endpoint", "Pool", "State", "Weight"]
    assert len(lines[1].split()) == len(columns), "cells have no blanks, so that awk can read them"


def test_the_pool_is_shown_only_where_there_are_several(now: Picture) -> None:
    one = Picture([row for row in now.rows if row.pool == "chat"])
    assert "Pool" not in drawn(once(one, 200, Screen()), 200)


def test_the_last_picture_stays_under_a_banner_with_its_age(now: Picture) -> None:
    text = screenful(now, 120, trouble="http://x cannot be reached", age_seconds=12.4)
    assert "NO ANSWER: http://x cannot be reached; what you see is 12 s old; trying again" in text
    assert "10.0.0.1:8000" in text


def test_a_banner_stands_alone_before_the_first_answer() -> None:
    text = screenful(None, 80, trouble="no route")
    assert "NO ANSWER: no route; trying again" in text
    assert "nothing known yet" in text


def test_pools_on_old_knowledge_are_named(now: Picture) -> None:
    status = {**now.status, "serving_last_good": ["chat"], "unknown_pools": ["code"]}
    text = screenful(replace(now, status=status), 120)
    assert "served from the last good state: chat" in text
    assert "nothing is known of: code" in text


@pytest.mark.parametrize("rows", [24, 12, 5])
def test_more_endpoints_than_rows_are_counted_and_scrolled_to(rows: int) -> None:
    many = Picture([EndpointRow(f"10.0.0.{n:03}:8000", "chat", weight=n) for n in range(100)])
    text = screenful(many, 100, rows)
    shown = [line for line in text.splitlines() if line.startswith("10.0.0.")]
    assert len(shown) == page_rows(Frame(URL, many), 100, rows) >= 1
    assert f"{len(shown)} of 100 rows" in text
    assert len(text.splitlines()) == rows
    scrolled = screenful(many, 100, rows, screen=Screen(offset=99))
    assert "10.0.0.099:8000" in scrolled, "the last row is reached and nothing beyond it"


@pytest.mark.parametrize(("columns", "rows"), [(40, 10), (40, 24), (80, 12), (80, 24), (200, 9)])
def test_a_small_screen_cuts_the_header_before_the_endpoints(now: Picture, columns: int, rows: int) -> None:
    reasons = {f"reason_{n}": n for n in range(20)}
    busy = replace(now, skew=["long tail chat"] * 3, status={**now.status, "picks": {"warm": 1, **reasons}})
    lines = screenful(busy, columns, rows, trouble="no answer", clock="12:00:00").splitlines()
    assert len(lines) <= rows
    assert all(len(line) <= columns for line in lines)
    assert lines[0].startswith("Warmroute")
    assert "3 endpoints" in lines[0]
    assert sum(line.startswith("10.0.0.") for line in lines) == 3
    assert "NO ANSWER" in "\n".join(lines)
    assert lines[-1].rstrip().endswith("q quit")


def test_headers_and_named_are_picks(now: Picture) -> None:
    picks = {"warm": 5, "cold": 1, "headers": 3, "named": 1, **{f"reason_{n}": n for n in range(1, 6)}}
    lines = screenful(replace(now, status={"picks": picks}), 120).splitlines()
    assert "picks    warm 5 20%   headers 3 12%   cold 1 4%   named 1 4%" in [line.rstrip() for line in lines]
    assert "no pick  reason_5 5 20%   reason_4 4 16%   reason_3 3 12%   others 3 12%" in [
        line.rstrip() for line in lines
    ]


def test_freshness_of_kv_events_is_in_the_header(now: Picture) -> None:
    events = {f"10.0.0.{n}:80": {"freshness": "whole"} for n in range(3)}
    events["10.0.0.9:80"] = {"freshness": "partial", "cause": "a message was unreadable"}
    lines = [line.rstrip() for line in screenful(replace(now, kv_events=events), 120).splitlines()]
    assert "events   whole 3   partial 1" in lines
    assert "note     KV events of 10.0.0.9:80 are partial: a message was unreadable" in lines
    assert "events" not in screenful(now, 120)


def test_numbers_stay_where_lines_of_the_past_have_no_room(now: Picture) -> None:
    heading = next(line for line in screenful(now, 140).splitlines() if line.startswith("Endpoint"))
    assert "P50" in heading.split()
    assert "P99s" not in heading.split()


@pytest.mark.parametrize(("columns", "rows"), [(40, 10), (120, 40)])
def test_help_names_every_key(now: Picture, columns: int, rows: int) -> None:
    lines = screenful(now, columns, rows, screen=Screen(help=True)).splitlines()
    assert len(lines) <= rows
    assert all(len(line) <= columns for line in lines)
    text_shown = " ".join(lines)
    for key in ("s, S", "/", "Esc", "p", "PgUp", "Home", "End", "g, G", "?, h", "q, Ctrl-C"):
        assert key in text_shown, key


def test_the_sorted_column_is_marked_and_a_filter_is_shown(now: Picture) -> None:
    text = screenful(now, 210, screen=Screen(sort="kv", reverse=True, filter="chat"))
    assert "KV▼" in text
    assert "filter: chat (2 of 3)" in text
    assert "10.0.0.3:8000" not in text


def test_a_filter_being_typed_is_shown(now: Picture) -> None:
    assert "filter: 10.0█" in screenful(now, 120, screen=Screen(editing="10.0"))


def test_colours_come_and_no_color_is_honoured(now: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    content = live(Frame(URL, now), 120, 30)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in drawn(content, 120, colours=True, color_system="standard")
    monkeypatch.setenv("NO_COLOR", "1")
    plain = drawn(content, 120, colours=True, color_system="standard")
    assert not {code for code in ("[31m", "[32m", "[36m", "[1;31m", "[1;37;41m") if f"\x1b{code}" in plain}


def test_unknown_comes_last_whichever_way_rows_are_sorted(now: Picture) -> None:
    for reverse in (False, True):
        assert ordered(now.rows, "weight", reverse=reverse)[-1].address == "10.0.0.3:8000"
    assert [row.weight for row in ordered(now.rows, "weight", reverse=True)] == [300, 100, None]
    assert ordered(now.rows, "health", reverse=False)[0].address == "10.0.0.2:8000", "the worst first"


@pytest.mark.parametrize("key", SORTABLE)
def test_every_column_sorts_what_it_shows(now: Picture, key: str) -> None:
    assert len(ordered(now.rows, key, reverse=True)) == 3
    assert len({column.key for column in COLUMNS}) == len(COLUMNS)


@pytest.mark.parametrize(
    ("text", "matches"),
    [("", 3), ("CHAT", 2), ("chat stalled", 1), ("memory", 1), ("probing", 1), ("nothing", 0)],
)
def test_rows_match_by_every_word(now: Picture, text: str, matches: int) -> None:
    assert len(matching(now.rows, text)) == matches


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, UNKNOWN), (0.0, "0ms"), (0.0441, "44ms"), (0.9994, "999ms"), (0.9996, "1.00s"), (61, "61s")],
)
def test_durations_are_short(seconds: float | None, text: str) -> None:
    assert duration(seconds).plain == text


def test_history_is_the_mean_of_each_span_and_forgets() -> None:
    history = History(window_seconds=10)
    for at, weight in ((0.0, 100), (1.0, 300), (6.0, 50), (9.0, None)):
        rows = [EndpointRow("a:1", share=weight, load={"latency_p99_seconds": 2.0}), EndpointRow("b:1")]
        history.add(at, Picture(rows))
    assert history.series("a:1", WEIGHT, 2, 10.0) == [200, 50]
    assert history.series("b:1", WEIGHT, 2, 10.0) == [None, None]
    assert history.series("a:1", P99, 5, 10.0) == [2, None, None, 2, 2]
    assert history.highest(WEIGHT) == 300
    history.add(10.5, Picture([EndpointRow("b:1")]))
    assert history.series("a:1", WEIGHT, 2, 10.5) == [None, None], "it left"


def test_sparklines_are_on_one_scale() -> None:
    assert sparkline([0, 1, 2, None, 4], 4) == "▁▃▅ █"
    assert sparkline([0, 0], 0) == "▁▁"
