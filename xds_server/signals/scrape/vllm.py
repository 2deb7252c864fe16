"""vLLM. Names as of 0.32, then those of 0.11 and older. One series a data-parallel engine.

Source: `vllm/v1/metrics/loggers.py` and recorded pages. `kv_cache_usage_perc` is a share of 1, and counts the
blocks of running requests only: what the prefix cache holds besides is free to be taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.history import histogram, metric, number
from xds_server.signals.scrape.rules import (
    Table,
    highest,
    lowest,
    moving,
    of_labels,
    quantile,
    rate,
    ratio,
    total,
    variance,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIRST_TOKEN, _FIRST_TOKEN_SUM, _FIRST_TOKEN_COUNT = histogram("vllm:time_to_first_token_seconds")
_PROMPT_BUCKETS, _PROMPT_SUM, _PROMPT_COUNT = histogram("vllm:request_prompt_tokens")
_, _ANSWER_SUM, _ANSWER_COUNT = histogram("vllm:request_generation_tokens")
_HITS = metric("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total")
_QUERIES = metric("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total")
_PREFILLED = metric("vllm:request_prefill_kv_computed_tokens_sum")
_PREFILLING = metric("vllm:request_prefill_time_seconds_sum")
_PROMPT = metric("vllm:prompt_tokens_total")
_GENERATED = metric("vllm:generation_tokens_total")
_STEPS = metric("vllm:iteration_tokens_total_count")
_FINISHED = metric("vllm:request_success_total")


def capacity(labels: Mapping[str, str]) -> float:
    """Tokens that one engine's KV cache holds, out of `cache_config_info`; NaN when it is not there."""
    stated = number(labels.get("kv_cache_size_tokens"))
    if stated > 0:
        return stated
    return number(labels.get("block_size")) * number(labels.get("num_gpu_blocks"))


VLLM: Final = Table(
    marks=("vllm:",),
    fields={
        "memory_used_ratio": highest(metric("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")),
        "queue_depth": total(metric("vllm:num_requests_waiting")),
        "running": total(metric("vllm:num_requests_running")),
        "latency_p50_seconds": quantile(_FIRST_TOKEN, 0.5),
        "latency_p99_seconds": quantile(_FIRST_TOKEN, 0.99),
        "prefix_hit_ratio": ratio(_HITS, _QUERIES, most=1.0),
        "kv_capacity_tokens": of_labels(metric("vllm:cache_config_info"), capacity),
        "prefill_tokens_per_second": ratio(_PREFILLED, _PREFILLING),
        "prefilling_mean": rate(_PREFILLING),
        "prompt_tokens_per_second": rate(_PROMPT),
        "generation_tokens_per_second": rate(_GENERATED),
        "prompt_tokens_mean": ratio(_PROMPT_SUM, _PROMPT_COUNT),
        "prompt_tokens_variance": variance(_PROMPT_BUCKETS),
        "generation_tokens_mean": ratio(_ANSWER_SUM, _ANSWER_COUNT),
        "preemptions_per_second": rate(metric("vllm:num_preemptions_total")),
        "awake": lowest(metric("vllm:engine_sleep_state", sleep_state="awake")),
        "first_tokens_total": total(_FIRST_TOKEN_COUNT),
        "first_token_seconds_total": total(_FIRST_TOKEN_SUM),
        "progress_total": moving(_PROMPT, _GENERATED, _STEPS, _FINISHED),
    },
    optional=frozenset(("awake",)),
)
