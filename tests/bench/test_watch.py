"""The live table must show what is known, and a dash for what is not."""

from __future__ import annotations

import io
from dataclasses import fields
from typing import Any

import pytest
from rich.console import Console, RenderableType

from fleet.signals import SIGNALS
from warmroute.demo.report import at_least, exactly
from warmroute.demo.stats import Outcome
from warmroute.demo.table import bar, comparison, live, won
from warmroute.demo.watch import Row, View, by_address, entry_of, row, stage

PAGE = b"""# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smol"} 0.25
vllm:num_requests_waiting{engine="0",model_name="smol"} 3.0
vllm:num_requests_running{engine="0",model_name="smol"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
"""


def drawn(view: View, columns: int = 140) -> str:
    return printed(live("title", "note", view, 20, columns), columns)


def printed(shape: RenderableType, columns: int) -> str:
    console = Console(file=io.StringIO(), width=columns)
    console.print(shape)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def one_run(p50: float | None, p99: float | None, hits: float | None, failures: int = 0) -> dict[str, Any]:
    return {
        "requests": 1586,
        "failures": failures,
        "ttft_p50_seconds": p50,
        "ttft_p99_seconds": p99,
        "e2e_p99_seconds": p99,
        "prefix_hit_ratio": hits,
        "max_over_mean": 1.0,
    }


def test_gauges_are_read_from_an_engines_page() -> None:
    assert entry_of(PAGE) == {
        "in_flight": 7,
        "load": {"memory_used_ratio": 0.25, "queue_depth": 3.0, "running": 4.0},
    }
    assert entry_of(b"") == {"load": {}}


def test_endpoints_without_a_load_stay_unknown() -> None:
    entries = by_address({"endpoints": [{"address": "a:1", "weight": 5, "in_flight": 2, "load": None}]})
    made = row("a:1", entries["a:1"], [])
    assert (made.weight, made.in_flight) == (5, 2)
    assert made.memory_used_ratio is None
    assert made.latency_p99_seconds is None
    assert by_address(None) == {}


def test_a_load_overwrites_nothing_of_its_entry() -> None:
    """Every number of a load is a float and may share its name with a count of the entry."""
    load = dict.fromkeys(SIGNALS, 6.0) | {"weight": 0.5, "address": 1.0}
    entries = by_address({"endpoints": [{"address": "a:1", "weight": 5, "in_flight": 2, "load": load}]})
    made = row("a:1", entries["a:1"], [])
    assert (made.address, made.weight, made.in_flight) == ("a:1", 5, 2)
    assert made.queue_depth == 6.0
    assert "a:1" in drawn(View([made], 5, 50, 7, 1))


@pytest.mark.parametrize("number", [3, 3.0])
def test_every_number_of_a_row_is_drawn_whatever_its_type(number: float) -> None:
    values: dict[str, Any] = {field.name: number for field in fields(Row) if field.name != "address"}
    assert "a:1" in drawn(View([Row("a:1", **values)], 5, 50, 7, 1))


def test_what_warmroute_knows_goes_before_what_the_client_saw() -> None:
    outcomes = [
        Outcome(0, 1, ttft_seconds=0.5, prompt_tokens=10, cached_tokens=5, served="a:1"),
        Outcome(0, 1, ttft_seconds=9.0, prompt_tokens=10, cached_tokens=0, served="b:1"),
    ]
    measured = row("a:1", {}, outcomes)
    assert (measured.latency_p99_seconds, measured.prefix_hit_ratio, measured.requests) == (0.5, 0.5, 1)
    reported = row("a:1", {"load": {"latency_p99_seconds": 0.1, "prefix_hit_ratio": 0.0}}, outcomes)
    assert (reported.latency_p99_seconds, reported.prefix_hit_ratio) == (0.1, 0.0)


def test_a_bar_fills_with_its_share() -> None:
    assert bar(0.0, "red", 4).plain == "····"
    assert bar(0.5, "red", 4).plain == "██··"
    assert bar(1.0, "red", 4).plain == "████"
    assert bar(7.0, "red", 4).plain == "████"


def test_the_table_shows_numbers_and_dashes() -> None:
    rows = [Row("a:1", 120, 0.5, 3, 0.25, 7, 0.9, 42), Row("b:1")]
    text = drawn(View(rows, 5, 50, 7, 1, {"weight_updates": 3, "picks": {"warm": 40, "cold": 0}}))
    for shown in (
        "a:1",
        "120",
        "50%",
        "0.25 s",
        "90%",
        "42",
        "weight updates 3",
        "warm picks 40",
        "failed 1",
    ):
        assert shown in text
    assert "cold picks" not in text
    assert " - " in next(line for line in text.splitlines() if "b:1" in line)


WIDE_ROW = Row("127.0.0.1:65535", 12_345, 1.0, 120, 10.25, 120, 1.0, 12_345)


@pytest.mark.parametrize("columns", [40, 66, 79, 80, 97, 98, 100, 111, 112, 140, 200])
def test_frames_are_whole_and_equally_wide_at_usual_widths(columns: int) -> None:
    status = {"weight_updates": 20, "acks": 23, "nacks": 0, "picks": {"warm": 561, "cold": 25}}
    lines = drawn(View([WIDE_ROW], 5, 50, 7, 1, status), columns).splitlines()
    result = {
        "round_robin": one_run(0.1, 0.4, 0.3),
        "warmroute": one_run(0.02, 0.2, 0.9),
        "weight_updates": 20,
        "acks": 23,
        "nacks": 0,
        "picks": 586,
        "picks_honoured": 1.0,
        "pick_reasons": {"warm": 561, "cold": 25},
    }
    targets = [at_least("prefix_hit_ratio_over_round_robin", 3.0, 2.0), exactly("nacks", 1, 0)]
    lines += printed(comparison(result, targets, columns), columns).splitlines()
    assert not [line for line in lines if "…" in line]
    assert not [
        line for line in lines if line.rstrip("│ ").endswith(("cold", "cold picks", "weight updates"))
    ]
    assert {len(line) for line in lines} == {min(columns, 112)}
    assert any("127.0.0.1:65535" in line and line.count("12,345") == 2 * (columns >= 66) for line in lines)


def test_the_comparison_marks_the_better_figure_and_its_lead() -> None:
    result = {
        "round_robin": one_run(0.12, 0.40, 0.3, failures=2),
        "warmroute": {**one_run(0.02, 0.41, 0.9), "max_over_mean": 1.3},
        **dict.fromkeys(("weight_updates", "acks", "nacks", "picks"), 0),
        "picks_honoured": None,
        "pick_reasons": {"warm": 1, "headers": 2, "named": 3, "not_json": 4},
    }
    text = printed(comparison(result, [], 112), 112)
    lines = {line.strip("│ ")[:24].strip(): line for line in text.splitlines()}
    for name, marked, words in (
        ("Failures", "✓ 0", "-2"),
        ("Time to first token, P50", "✓ 0.020 s", "6.0 times sooner"),
        ("Prefix hit ratio", "✓ 90.0%", "3.0 times higher"),
        ("Busiest engine over the", "✓ 1.00", "1.3 times less even"),
    ):
        assert marked in lines[name], lines[name]
        assert lines[name].count("✓") == 1
        assert lines[name].rstrip("│ ").endswith(words), lines[name]
    assert lines["Time to first token, P99"].rstrip("│ ").endswith("the same")
    assert "✓" not in lines["Time to first token, P99"] + lines["Requests"]
    for shown in ("warm picks 1", "headers picks 2", "named picks 3", "no pick (not_json) 4"):
        assert shown in text


def test_a_run_says_how_far_it_is() -> None:
    assert stage(View([], 7.25, 9, 3, 0), 20) == "7.2 of 20 s"
    assert stage(View([], 21.0, 9, 3, 0), 20) == "waiting for the last answers"
    assert stage(View([], 22.0, 9, 0, 0), 20) == "done"


def test_the_last_sentence_names_changes_for_better_or_worse() -> None:
    better = won(one_run(0.12, 0.40, 0.389), one_run(0.02, 0.20, 0.911))
    assert "6.0 times sooner at the median and 2.0 times sooner at P99" in better
    assert "91% of the prompts' tokens were in the engine's cache instead of 39%" in better
    assert better.endswith(", and no request failed.")
    worse = won(one_run(0.10, 0.40, 0.4), one_run(0.15, 0.41, 0.4, failures=1))
    assert "1.5 times later at the median and no sooner at P99" in worse
    assert worse.endswith(", and 1 request failed.")
    nothing = won(one_run(None, None, None, 5), one_run(None, None, None, 5))
    assert nothing == "With Warmroute 5 requests failed."
