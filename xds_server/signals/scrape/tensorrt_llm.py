"""TensorRT-LLM's `trtllm-serve`. Names with `trtllm_`; 1.1 and older have five metrics, without the prefix.

The page of the latter shows neither memory nor queue and is read where the settings name the kind. Source:
`tensorrt_llm/metrics/collector.py`. At `/metrics` it answers JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.history import metric
from xds_server.signals.scrape.rules import (
    Table,
    UsualPlace,
    either,
    highest,
    moving,
    product,
    quantile,
    rate,
    ratio,
    total,
)

if TYPE_CHECKING:
    from xds_server.signals.scrape.history import Metric


def _old_too(name: str) -> Metric:
    return metric(f"trtllm_{name}", name)


_FIRST_TOKEN = _old_too("time_to_first_token_seconds_bucket")
_REUSED = metric("trtllm_kv_cache_reused_blocks_total")
_MISSED = metric("trtllm_kv_cache_missed_blocks_total")
_MAX_BLOCKS = metric("trtllm_kv_cache_max_blocks")
_BLOCK_TOKENS = metric("trtllm_kv_cache_tokens_per_block")
_PROMPT = metric("trtllm_prompt_tokens_total")
_GENERATED = metric("trtllm_generation_tokens_total")
_FINISHED = _old_too("request_success_total")

TENSORRT_LLM: Final = Table(
    marks=("trtllm_",),
    fields={
        "memory_used_ratio": highest(metric("trtllm_kv_cache_utilization")),
        "queue_depth": total(metric("trtllm_num_requests_waiting")),
        "running": total(metric("trtllm_num_requests_running")),
        "latency_p50_seconds": quantile(_FIRST_TOKEN, 0.5),
        "latency_p99_seconds": quantile(_FIRST_TOKEN, 0.99),
        "prefix_hit_ratio": either(
            ratio(_REUSED, _REUSED, _MISSED, most=1.0), highest(metric("trtllm_kv_cache_hit_rate"))
        ),
        "kv_capacity_tokens": product(_MAX_BLOCKS, _BLOCK_TOKENS),
        "prompt_tokens_per_second": rate(_PROMPT),
        "generation_tokens_per_second": rate(_GENERATED),
        "prompt_tokens_mean": ratio(_PROMPT, _FINISHED),
        "generation_tokens_mean": ratio(_GENERATED, _FINISHED),
        "batch_limit": total(metric("trtllm_max_num_active_requests")),
        "progress_total": moving(
            _FINISHED,
            _PROMPT,
            _GENERATED,
            metric("trtllm_iteration_latency_seconds_count"),
            _old_too("time_per_output_token_seconds_count"),
            _old_too("time_to_first_token_seconds_count"),
            _REUSED,
            _MISSED,
        ),
    },
    usual=UsualPlace("/prometheus/metrics"),
    # Of new versions only.
    optional=frozenset(
        (
            "prompt_tokens_per_second",
            "generation_tokens_per_second",
            "prompt_tokens_mean",
            "generation_tokens_mean",
        )
    ),
)
