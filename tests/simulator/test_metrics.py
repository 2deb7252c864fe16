"""The metrics page is vLLM's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from warmroute.simulator.metrics import EngineMetrics, Histogram, decades
from warmroute.simulator.model import EngineConfig, EngineModel, Request, Steps

pytestmark = pytest.mark.io

LATENCY = [
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0, float("inf")),
]
FIRST_TOKEN = [
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0, float("inf")),
]


def families(page: str) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(page)}


def value(page: dict[str, Any], family: str, sample: str = "", **labels: str) -> float:
    """The one sample with this name and these labels."""
    values = [
        row.value
        for row in page[family].samples
        if row.name == (sample or family) and labels.items() <= row.labels.items()
    ]
    assert len(values) == 1
    return float(values[0])


async def test_the_page_parses_and_counts_what_was_served(engine: Any) -> None:
    """After two equal requests: tokens, hits, successes and histograms agree with the usage."""
    usages = [(await engine.chat("hello " * 300, max_tokens=20))["usage"] for _ in range(2)]
    async with engine.client.get(f"http://{engine.address}/metrics") as reply:
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        page = families(await reply.text())
    prompt = sum(usage["prompt_tokens"] for usage in usages)
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert cached > 0
    assert value(page, "vllm:prompt_tokens", "vllm:prompt_tokens_total") == prompt
    assert value(page, "vllm:prefix_cache_queries", "vllm:prefix_cache_queries_total") == prompt
    assert value(page, "vllm:prefix_cache_hits", "vllm:prefix_cache_hits_total") == cached
    assert value(page, "vllm:generation_tokens", "vllm:generation_tokens_total") == 40
    success = "vllm:request_success"
    assert value(page, success, f"{success}_total", finished_reason="length") == 2
    computed = "vllm:request_prefill_kv_computed_tokens"
    assert value(page, computed, f"{computed}_sum") == prompt - cached
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert value(page, f"vllm:{name}", f"vllm:{name}_count") == 2
    assert value(page, "vllm:cache_config_info", block_size="16", num_gpu_blocks="43750") == 1
    assert value(page, "vllm:kv_cache_usage_perc") == 0


@pytest.mark.parametrize(
    ("metric", "edges"),
    [("e2e_request_latency_seconds", LATENCY), ("time_to_first_token_seconds", FIRST_TOKEN)],
)
async def test_buckets_are_vllms_and_cumulative(engine: Any, metric: str, edges: list[float]) -> None:
    """The edges of vLLM 0.32; counts never fall, and the last equals the count."""
    await asyncio.gather(*(engine.chat(f"{number} " * 100) for number in range(5)))
    rows = families((await engine.get("/metrics"))[1])[f"vllm:{metric}"].samples
    buckets = [row for row in rows if row.name.endswith("_bucket")]
    assert [float(row.labels["le"]) for row in buckets] == edges
    counts = [row.value for row in buckets]
    assert counts == sorted(counts)
    assert counts[-1] == 5


async def test_every_sample_of_the_engine_has_its_labels(engine: Any) -> None:
    """model_name and engine, as vLLM; cache_config_info has the engine only."""
    page = families((await engine.get("/metrics"))[1])
    for name, family in page.items():
        for row in family.samples:
            if name.startswith("vllm:"):
                assert row.labels["engine"] == "0"
                assert name == "vllm:cache_config_info" or row.labels["model_name"] == "warm-model"


def test_gauges_count_running_and_waiting_requests() -> None:
    """Two places, five requests, a model name that needs escaping."""
    metrics = EngineMetrics(1000)
    model = EngineModel(EngineConfig(max_num_seqs=2, num_blocks=100), metrics.on_steps)
    for _ in range(5):
        model.submit(Request(160, 100), 0.0)
    model.advance(0.1)
    page = families(metrics.page(model, 'a"b\\c', 0.0).decode())
    assert value(page, "vllm:num_requests_running", model_name='a"b\\c') == 2
    assert value(page, "vllm:num_requests_waiting") == 3
    assert value(page, "vllm:kv_cache_usage_perc") == pytest.approx(model.cache.used / 100)
    assert 0.2 <= value(page, "vllm:kv_cache_usage_perc") < 0.4


def test_a_row_of_steps_counts_like_its_steps() -> None:
    """Steps of 9 to 31 ms over four buckets, in one observation and one by one."""
    at_once, singly = Histogram("", (0.01, 0.02, 0.025, 0.1)), Histogram("", (0.01, 0.02, 0.025, 0.1))
    at_once.observe_steps(Steps(12, 0.009, 0.002, 0, 3))
    for index in range(12):
        singly.observe(0.009 + 0.002 * index, 3)
    assert at_once.counts == singly.counts == [3, 15, 9, 9, 0]
    assert at_once.total == pytest.approx(singly.total)


def test_token_buckets_end_at_the_longest_request() -> None:
    """1, 2, 5 and their tenfolds."""
    assert decades(100) == (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
    assert decades(99)[-1] == 50.0
