"""vLLM's page to a load: names of both ages, several engines, what is missing, what makes no sense."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from fleet.settings import SignalSettings
from xds_server.signals.scrape.reader import TableReader
from xds_server.signals.scrape.vllm import VLLM

PAGE = (Path(__file__).parents[2] / "bench" / "data" / "vllm-metrics.txt").read_bytes()
COUNTERS = """\
vllm:prefix_cache_queries_total{{engine="{engine}"}} {queries}
vllm:prefix_cache_hits_total{{engine="{engine}"}} {hits}
vllm:request_prefill_kv_computed_tokens_sum{{engine="{engine}"}} {tokens}
vllm:request_prefill_time_seconds_sum{{engine="{engine}"}} {seconds}
vllm:time_to_first_token_seconds_bucket{{engine="{engine}",le="0.1"}} {fast}
vllm:time_to_first_token_seconds_bucket{{engine="{engine}",le="2.0"}} {all}
vllm:time_to_first_token_seconds_bucket{{engine="{engine}",le="+Inf"}} {all}
"""


def reader() -> TableReader:
    return TableReader(VLLM, "127.0.0.1:8000", SignalSettings())


def counters(engine: int, queries: int, hits: int, tokens: int, seconds: float, fast: int, total: int) -> str:
    return COUNTERS.format(
        engine=engine, queries=queries, hits=hits, tokens=tokens, seconds=seconds, fast=fast, all=total
    )


@pytest.mark.parametrize(("states", "awake"), [((1, 1), 1.0), ((1, 0), 0.0), ((0, 0), 0.0)])
def test_an_engine_is_awake_if_all_of_its_ranks_are(states: tuple[int, ...], awake: float) -> None:
    page = "".join(
        f'vllm:engine_sleep_state{{engine="{rank}",sleep_state="awake"}} {state}\n'
        f'vllm:engine_sleep_state{{engine="{rank}",sleep_state="weights_offloaded"}} {1 - state}\n'
        for rank, state in enumerate(states)
    )
    assert reader().read(page.encode(), 5.0)["awake"] == awake


@pytest.mark.parametrize(
    ("ranks", "caching"), [(("True", "True"), 1.0), (("True", "False"), 0.0), (("None", "True"), None)]
)
def test_prefix_caching_is_on_if_all_ranks_say_so(ranks: tuple[str, ...], caching: float | None) -> None:
    page = "".join(
        f'vllm:cache_config_info{{enable_prefix_caching="{text}",engine="{rank}"}} 1\n'
        for rank, text in enumerate(ranks)
    )
    assert reader().read(page.encode(), 5.0).get("prefix_caching") == caching


def test_a_real_page_is_read_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    load = reader().read(PAGE, 5.0)
    assert load == {
        "memory_used_ratio": 0.0,
        "queue_depth": 0.0,
        "running": 0.0,
        "kv_capacity_tokens": 46592.0,
        "prefix_caching": 1.0,
        "awake": 1.0,
        "first_tokens_total": 14.0,
        "first_token_seconds_total": pytest.approx(14.13, abs=0.001),
        "progress_total": 16701.0 + 324 + 324 + 14,
    }
    assert not caplog.records


def test_counters_count_over_the_window() -> None:
    vllm = reader()
    vllm.read(counters(0, 1000, 900, 5000, 10.0, 100, 100).encode(), 0.0)
    load = vllm.read(counters(0, 1100, 925, 9000, 10.5, 100, 110).encode(), 1.0)
    assert load["prefix_hit_ratio"] == pytest.approx(0.25)
    assert load["prefill_tokens_per_second"] == pytest.approx(8000)
    assert load["prefilling_mean"] == pytest.approx(0.5), "half a second of prefill in a second"
    assert load["latency_p50_seconds"] == pytest.approx(0.1 + 1.9 * 0.5)
    assert load["latency_p99_seconds"] == pytest.approx(0.1 + 1.9 * 0.99)


MORE = """\
vllm:prompt_tokens_total {prompt}
vllm:generation_tokens_total {generated}
vllm:num_preemptions_total {preempted}
vllm:request_prompt_tokens_bucket{{le="100.0"}} {short}
vllm:request_prompt_tokens_bucket{{le="1000.0"}} {finished}
vllm:request_prompt_tokens_bucket{{le="+Inf"}} {finished}
vllm:request_prompt_tokens_sum {prompt}
vllm:request_prompt_tokens_count {finished}
vllm:request_generation_tokens_sum {generated}
vllm:request_generation_tokens_count {finished}
"""


def more(prompt: int, generated: int, preempted: int, short: int, finished: int) -> bytes:
    return MORE.format(
        prompt=prompt, generated=generated, preempted=preempted, short=short, finished=finished
    ).encode()


def test_token_rates_and_lengths_are_of_the_window() -> None:
    """Two seconds in which ten requests finish: five of up to 100 tokens, five of up to 1000."""
    vllm = reader()
    vllm.read(more(10_000, 5_000, 3, 7, 20), 10.0)
    load = vllm.read(more(13_000, 5_400, 4, 12, 30), 12.0)
    assert load["prompt_tokens_per_second"] == 1500
    assert load["generation_tokens_per_second"] == 200
    assert load["preemptions_per_second"] == 0.5
    assert load["prompt_tokens_mean"] == 300
    assert load["generation_tokens_mean"] == 40
    # Buckets' middles are 50 and 550.
    assert load["prompt_tokens_variance"] == pytest.approx(250**2)
    assert load["progress_total"] == 18_400


def test_a_restart_gives_no_rate_and_no_length() -> None:
    vllm = reader()
    vllm.read(more(10_000, 5_000, 3, 7, 20), 10.0)
    load = vllm.read(more(50, 20, 0, 1, 1), 11.0)
    assert load == {"progress_total": 70.0}
    load = vllm.read(more(150, 30, 0, 2, 2), 12.0)
    assert load["prompt_tokens_per_second"] == 100
    assert load["preemptions_per_second"] == 0


def test_several_engines_of_one_endpoint_are_put_together() -> None:
    """Counts summed, usage the highest, capacity summed, histograms added per bucket."""
    page = b"""\
vllm:num_requests_waiting{engine="0"} 3
vllm:num_requests_waiting{engine="1"} 7
vllm:num_requests_running{engine="0"} 1
vllm:num_requests_running{engine="1"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.9
vllm:kv_cache_usage_perc{engine="1"} 0.2
vllm:cache_config_info{engine="0",kv_cache_size_tokens="1000"} 1
vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="100"} 1
"""
    vllm = reader()
    start = counters(0, 0, 0, 0, 0.0, 0, 0) + counters(1, 0, 0, 0, 0.0, 0, 0)
    vllm.read(page + start.encode(), 0.0)
    later = counters(0, 10, 5, 100, 1.0, 100, 100) + counters(1, 30, 5, 300, 1.0, 0, 100)
    load = vllm.read(page + later.encode(), 1.0)
    assert load["queue_depth"] == 10
    assert load["running"] == 3
    assert load["memory_used_ratio"] == 0.9
    assert load["kv_capacity_tokens"] == 2600
    assert load["prefix_hit_ratio"] == pytest.approx(0.25)
    assert load["prefill_tokens_per_second"] == pytest.approx(200)
    assert load["latency_p99_seconds"] == pytest.approx(0.1 + 1.9 * 0.98)


def test_an_engine_that_joins_an_endpoint_adds_no_history() -> None:
    vllm = reader()
    vllm.read(counters(0, 0, 0, 0, 0.0, 0, 0).encode(), 0.0)
    both = counters(0, 10, 5, 0, 0.0, 0, 0) + counters(1, 9000, 9000, 0, 0.0, 0, 9000)
    load = vllm.read(both.encode(), 1.0)
    assert "prefix_hit_ratio" not in load
    assert "latency_p99_seconds" not in load


def test_a_new_process_has_new_counters_even_if_they_are_higher() -> None:
    vllm = reader()
    vllm.read(b"process_start_time_seconds 100\n" + counters(0, 1, 1, 0, 0.0, 0, 1).encode(), 0.0)
    load = vllm.read(b"process_start_time_seconds 200\n" + counters(0, 50, 1, 0, 0.0, 0, 9).encode(), 9.0)
    assert "prefix_hit_ratio" not in load
    assert "latency_p99_seconds" not in load


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b"vllm:gpu_cache_usage_perc 0.4\n", 0.4),
        (b"vllm:kv_cache_usage_perc 0.5\n", 0.5),
        (b"vllm:gpu_cache_usage_perc 0.4\nvllm:kv_cache_usage_perc 0.5\n", 0.5),
        (b"vllm:kv_cache_usage_perc NaN\n", None),
        (b"vllm:kv_cache_usage_perc +Inf\n", None),
        (b"vllm:kv_cache_usage_perc -1\n", None),
        (b'vllm:kv_cache_usage_perc{engine="0"} NaN\nvllm:kv_cache_usage_perc{engine="1"} 0.1\n', None),
    ],
)
def test_memory_is_read_by_either_name_and_is_finite(page: bytes, expected: float | None) -> None:
    assert reader().read(page, 0.0).get("memory_used_ratio") == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (b'kv_cache_size_tokens="46592",block_size="128",num_gpu_blocks="1"', 46592),
        (b'kv_cache_size_tokens="None",block_size="128",num_gpu_blocks="364"', 46592),
        (b'block_size="16",num_gpu_blocks="None"', None),
        (b'block_size="sixteen"', None),
    ],
)
def test_capacity_comes_from_the_config_labels(labels: bytes, expected: float | None) -> None:
    page = b"vllm:cache_config_info{" + labels + b"} 1.0\n"
    assert reader().read(page, 0.0).get("kv_capacity_tokens") == expected


def test_a_missing_metric_is_unknown_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    vllm = reader()
    for second in range(5):
        load = vllm.read(b"<html>not a metrics page</html>", float(second))
        assert load == {}
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "127.0.0.1:8000" in warning
    for field in ("memory_used_ratio", "queue_depth", "running", "kv_capacity_tokens", "progress_total"):
        assert field in warning
    assert "vllm:kv_cache_usage_perc or vllm:gpu_cache_usage_perc" in warning
    assert "latency_p99_seconds" not in warning  # histograms may come with the first request


def test_metric_missing_after_work_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vllm = reader()
    idle = b"\n".join(line for line in PAGE.splitlines() if b"time_to_first_token" not in line)
    vllm.read(idle.replace(b"} 324.0", b"} 0.0").replace(b"} 16701.0", b"} 0.0"), 0.0)
    for second in range(1, 4):
        vllm.read(idle, float(second))
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "latency_p99_seconds (vllm:time_to_first_token_seconds_bucket)" in warning
    assert "queue_depth" not in warning


def test_malformed_lines_of_the_newest_page_are_counted() -> None:
    vllm = reader()
    vllm.read(b"vllm:num_requests_waiting many\nvllm:num_requests_running\n", 0.0)
    assert vllm.malformed_lines == 2
    vllm.read(PAGE, 1.0)
    assert vllm.malformed_lines == 0


def test_repeated_series_counts_once_with_its_last_value() -> None:
    """Two collectors of one process in a row; in another order of labels it is the same series."""
    page = b"""\
vllm:num_requests_running{engine="0",model_name="m"} 3
vllm:num_requests_running{engine="1",model_name="m"} 7
vllm:num_requests_running{model_name="m",engine="0"} 4
"""
    assert reader().read(page, 0.0).get("running") == 11
