"""vLLM, alone or below Ray Serve or NIM. Names as of 0.32, then those of 0.11 and older.

One series a data-parallel engine. Source: `vllm/v1/metrics/loggers.py` and recorded pages.
`kv_cache_usage_perc` is a share of 1, and counts the blocks of running requests only: what the prefix cache
holds besides is free to be taken.

Ray Serve writes `ray_vllm_` for `vllm:`, or `ray_vllm:` in older versions
(https://docs.ray.io/en/latest/serve/llm/user-guides/observability.html). NIM writes no prefix
(https://docs.nvidia.com/nim/large-language-models/latest/observability.html).
"""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.history import histogram, metric, number
from xds_server.signals.scrape.rules import (
    Rule,
    Table,
    UsualPlace,
    highest,
    lowest,
    lowest_of_labels,
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

    from xds_server.signals.scrape.history import Metric


def capacity(labels: Mapping[str, str]) -> float:
    """Tokens that one engine's KV cache holds, out of `cache_config_info`; NaN when it is not there."""
    stated = number(labels.get("kv_cache_size_tokens"))
    if stated > 0:
        return stated
    return number(labels.get("block_size")) * number(labels.get("num_gpu_blocks"))


def caching(labels: Mapping[str, str]) -> float:
    """Whether an engine keeps prefixes, out of `cache_config_info`; NaN when that is not there."""
    return {"True": 1.0, "False": 0.0}.get(labels.get("enable_prefix_caching", ""), nan)


def _fields(prefix: str) -> dict[str, Rule]:
    def named(*names: str, **only: str) -> Metric:
        return metric(*(prefix + name for name in names), **only)

    first_token, first_token_sum, first_token_count = histogram(f"{prefix}time_to_first_token_seconds")
    prompt_buckets, prompt_sum, prompt_count = histogram(f"{prefix}request_prompt_tokens")
    _, answer_sum, answer_count = histogram(f"{prefix}request_generation_tokens")
    prefilled = named("request_prefill_kv_computed_tokens_sum")
    prefilling = named("request_prefill_time_seconds_sum")
    prompt, generated = named("prompt_tokens_total"), named("generation_tokens_total")
    finished = named("request_success_total", "request_finish_total")
    hits = named("prefix_cache_hits_total", "gpu_prefix_cache_hits_total")
    queries = named("prefix_cache_queries_total", "gpu_prefix_cache_queries_total")
    return {
        "memory_used_ratio": highest(named("kv_cache_usage_perc", "gpu_cache_usage_perc")),
        "queue_depth": total(named("num_requests_waiting")),
        "running": total(named("num_requests_running")),
        "latency_p50_seconds": quantile(first_token, 0.5),
        "latency_p99_seconds": quantile(first_token, 0.99),
        "prefix_hit_ratio": ratio(hits, queries, most=1.0),
        "prefix_caching": lowest_of_labels(named("cache_config_info"), caching),
        "kv_capacity_tokens": of_labels(named("cache_config_info"), capacity),
        "prefill_tokens_per_second": ratio(prefilled, prefilling),
        "prefilling_mean": rate(prefilling),
        "prompt_tokens_per_second": rate(prompt),
        "generation_tokens_per_second": rate(generated),
        "prompt_tokens_mean": ratio(prompt_sum, prompt_count),
        "prompt_tokens_variance": variance(prompt_buckets),
        "generation_tokens_mean": ratio(answer_sum, answer_count),
        "preemptions_per_second": rate(named("num_preemptions_total")),
        "awake": lowest(named("engine_sleep_state", sleep_state="awake")),
        "first_tokens_total": total(first_token_count),
        "first_token_seconds_total": total(first_token_sum),
        "progress_total": moving(prompt, generated, named("iteration_tokens_total_count"), finished),
    }


_RAY_PORT: Final = 8080
"""`--metrics-export-port` of `ray start`."""

VLLM: Final = Table(
    marks=("vllm:",),
    spellings=("ray_vllm_", "ray_vllm:"),
    fields=_fields("vllm:"),
    optional=frozenset(("awake", "prefix_caching")),
    rank_label="engine",
    ranks_by_default=True,
    usual=UsualPlace("/metrics", _RAY_PORT),
)

NIM: Final = Table(
    marks=("num_requests_", "gpu_cache_usage_perc", "kv_cache_usage_perc"),
    fields=_fields("") | {"batch_limit": total(metric("num_request_max"))},
    # Its backends differ in these.
    optional=frozenset(
        (
            "prefix_hit_ratio",
            "prefix_caching",
            "kv_capacity_tokens",
            "prefill_tokens_per_second",
            "prefilling_mean",
            "preemptions_per_second",
            "awake",
            "batch_limit",
        )
    ),
    usual=UsualPlace("/v1/metrics"),
)
