"""TensorRT-LLM's `trtllm-serve`. Names with `trtllm_`; 1.1 and older have five metrics, without the prefix.

Source: `tensorrt_llm/metrics/collector.py`. The page stands at `/prometheus/metrics` (`/metrics` answers
JSON), so `metrics_url` has to be set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.rules import Either, Highest, Moving, Product, Quantile, Rate, Ratio, Total
from xds_server.signals.scrape.table import Table, metric

if TYPE_CHECKING:
    from xds_server.signals.scrape.table import Metric


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
    marks=("trtllm_", "time_to_first_token_seconds_bucket", "e2e_request_latency_seconds_bucket"),
    fields={
        "memory_used_ratio": Highest(metric("trtllm_kv_cache_utilization")),
        "queue_depth": Total(metric("trtllm_num_requests_waiting")),
        "running": Total(metric("trtllm_num_requests_running")),
        "latency_p50_seconds": Quantile(_FIRST_TOKEN, 0.5),
        "latency_p99_seconds": Quantile(_FIRST_TOKEN, 0.99),
        "prefix_hit_ratio": Either(
            Ratio(_REUSED, _REUSED, _MISSED, most=1.0), Highest(metric("trtllm_kv_cache_hit_rate"))
        ),
        "kv_capacity_tokens": Product(_MAX_BLOCKS, _BLOCK_TOKENS),
        "prompt_tokens_per_second": Rate(_PROMPT),
        "generation_tokens_per_second": Rate(_GENERATED),
        "prompt_tokens_mean": Ratio(_PROMPT, _FINISHED),
        "generation_tokens_mean": Ratio(_GENERATED, _FINISHED),
        "batch_limit": Total(metric("trtllm_max_num_active_requests")),
        "progress_total": Moving(
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
