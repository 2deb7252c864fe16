"""Triton Inference Server with the TensorRT-LLM backend, or another: then the core's metrics only.

Source: the READMEs of `triton-inference-server/server` and `tensorrtllm_backend`. One series a model and
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.history import metric
from xds_server.signals.scrape.rules import (
    Table,
    UsualPlace,
    either,
    highest,
    highest_share,
    mean,
    moving,
    product,
    quantile,
    total,
)

if TYPE_CHECKING:
    from xds_server.signals.scrape.history import Metric


def _requests(kind: str) -> Metric:
    return metric("nv_trt_llm_request_metrics", request_type=kind)


def _blocks(kind: str) -> Metric:
    return metric("nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type=kind)


# Off unless Triton runs with --metrics-config histogram_latencies=true.
_FIRST_ANSWER = metric("nv_inference_first_response_histogram_ms_bucket")
_MILLISECONDS = 0.001

TRITON: Final = Table(
    marks=("nv_trt_llm_", "nv_inference_"),
    usual=UsualPlace("/metrics", 8002),
    fields={
        "memory_used_ratio": highest(_blocks("fraction")),
        "queue_depth": either(
            total(_requests("waiting")), total(metric("nv_inference_pending_request_count"))
        ),
        "running": total(_requests("scheduled")),
        "latency_p50_seconds": quantile(_FIRST_ANSWER, 0.5, _MILLISECONDS),
        "latency_p99_seconds": quantile(_FIRST_ANSWER, 0.99, _MILLISECONDS),
        "kv_capacity_tokens": product(_blocks("max"), _blocks("tokens_per")),
        "batch_limit": total(_requests("max")),
        "progress_total": moving(
            metric("nv_inference_request_success"),
            metric("nv_inference_request_failure"),
            metric("nv_inference_count"),
            metric("nv_inference_exec_count"),
            metric("nv_trt_llm_general_metrics", general_type="iteration_counter"),
        ),
        "gpu_memory_used_ratio": highest_share(
            metric("nv_gpu_memory_used_bytes"), metric("nv_gpu_memory_total_bytes")
        ),
        "gpu_memory_total_bytes": total(metric("nv_gpu_memory_total_bytes")),
        "gpu_utilisation_ratio": mean(metric("nv_gpu_utilization")),
        "gpu_power_ratio": highest_share(metric("nv_gpu_power_usage"), metric("nv_gpu_power_limit")),
    },
    # All but the queue is of one backend, or can be switched off.
    optional=frozenset(
        (
            "memory_used_ratio",
            "running",
            "latency_p50_seconds",
            "latency_p99_seconds",
            "kv_capacity_tokens",
            "batch_limit",
            "gpu_memory_used_ratio",
            "gpu_memory_total_bytes",
            "gpu_utilisation_ratio",
            "gpu_power_ratio",
        )
    ),
)
