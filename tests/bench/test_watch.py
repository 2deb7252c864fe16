"""The live table must show what is known, and a dash for what is not."""

from __future__ import annotations

import io

from rich.console import Console

from bench.stats import Outcome
from bench.table import bar, live
from bench.watch import Row, View, by_address, gauges, row

PAGE = b"""# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="smol"} 0.25
vllm:num_requests_waiting{engine="0",model_name="smol"} 3.0
vllm:num_requests_running{engine="0",model_name="smol"} 4.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 99.0
"""


def drawn(view: View) -> str:
    console = Console(file=io.StringIO(), width=140)
    console.print(live("title", "note", view, 20))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_gauges_are_read_from_an_engines_page() -> None:
    assert gauges(PAGE) == {
        "memory_used_ratio": 0.25,
        "queue_depth": 3.0,
        "running": 4.0,
        "in_flight": 7,
    }
    assert gauges(b"") == {}


def test_endpoints_without_a_load_stay_unknown() -> None:
    known = by_address({"endpoints": [{"address": "a:1", "weight": 5, "in_flight": 2, "load": None}]})
    made = row("a:1", known["a:1"], [])
    assert (made.weight, made.in_flight) == (5, 2)
    assert made.memory_used_ratio is None
    assert made.latency_p99_seconds is None
    assert by_address(None) == {}


def test_what_warmroute_knows_goes_before_what_the_client_saw() -> None:
    outcomes = [
        Outcome(0, 1, ttft_seconds=0.5, prompt_tokens=10, cached_tokens=5, served="a:1"),
        Outcome(0, 1, ttft_seconds=9.0, prompt_tokens=10, cached_tokens=0, served="b:1"),
    ]
    seen = row("a:1", {}, outcomes)
    assert (seen.latency_p99_seconds, seen.prefix_hit_ratio, seen.requests) == (0.5, 0.5, 1)
    told = row("a:1", {"latency_p99_seconds": 0.1, "prefix_hit_ratio": 0.0}, outcomes)
    assert (told.latency_p99_seconds, told.prefix_hit_ratio) == (0.1, 0.0)


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
        "0.25\u00a0s",
        "90%",
        "42",
        "weight updates 3",
        "warm picks 40",
        "failed 1",
    ):
        assert shown in text
    assert "cold picks" not in text
    assert " - " in next(line for line in text.splitlines() if "b:1" in line)
