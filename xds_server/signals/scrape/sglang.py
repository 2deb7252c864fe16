"""SGLang with `--enable-metrics`. Names as of 0.5.23; some builds write `sglang_` for `sglang:`.

Source: `srt/observability/metrics_collector.py`. Tensor- and pipeline-parallel ranks repeat one another;
data-parallel ones (`dp_rank`, with other tensor ranks each) do not. With priorities on, the series without
one is their sum. Tokens of finished requests come at their end, `realtime_tokens_total` while they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from xds_server.signals.scrape.history import metric
from xds_server.signals.scrape.rules import (
    Table,
    either,
    highest,
    moving,
    quantile,
    rate,
    ratio,
    total,
    variance,
)

if TYPE_CHECKING:
    from xds_server.signals.scrape.history import Metric


def _sglang(name: str, **only: str) -> Metric:
    return metric(f"sglang:{name}", f"sglang_{name}", **only)


_FIRST_TOKEN = _sglang("time_to_first_token_seconds_bucket")
_FIRST_TOKEN_SUM = _sglang("time_to_first_token_seconds_sum")
_FIRST_TOKEN_COUNT = _sglang("time_to_first_token_seconds_count")
_PROMPT = _sglang("prompt_tokens_total")
_GENERATED = _sglang("generation_tokens_total")
_CACHED = _sglang("cached_tokens_total")
_FINISHED = _sglang("num_requests_total")
_PREFILLED = _sglang("realtime_tokens_total", mode="prefill_compute")
_DECODED = _sglang("realtime_tokens_total", mode="decode")
_PREFILLING = _sglang("forward_execution_seconds_total", category="extend")

SGLANG: Final = Table(
    marks=("sglang:", "sglang_"),
    fields={
        "memory_used_ratio": highest(_sglang("token_usage")),
        "queue_depth": total(_sglang("num_queue_reqs")),
        "running": total(_sglang("num_running_reqs")),
        "latency_p50_seconds": quantile(_FIRST_TOKEN, 0.5),
        "latency_p99_seconds": quantile(_FIRST_TOKEN, 0.99),
        "prefix_hit_ratio": either(ratio(_CACHED, _PROMPT, most=1.0), highest(_sglang("cache_hit_rate"))),
        "kv_capacity_tokens": total(_sglang("max_total_num_tokens")),
        "prefill_tokens_per_second": ratio(_PREFILLED, _PREFILLING),
        "prefilling_mean": rate(_PREFILLING),
        "prompt_tokens_per_second": rate(_PROMPT),
        "generation_tokens_per_second": either(rate(_DECODED), rate(_GENERATED)),
        "prompt_tokens_mean": ratio(_PROMPT, _FINISHED),
        "prompt_tokens_variance": variance(_sglang("prompt_tokens_histogram_bucket")),
        "generation_tokens_mean": ratio(_GENERATED, _FINISHED),
        "preemptions_per_second": rate(_sglang("num_retracted_requests_total")),
        "batch_limit": total(_sglang("max_running_requests")),
        "first_tokens_total": total(_FIRST_TOKEN_COUNT),
        "first_token_seconds_total": total(_FIRST_TOKEN_SUM),
        "progress_total": moving(
            _PROMPT, _GENERATED, _FINISHED, _PREFILLED, _DECODED, _sglang("num_used_tokens")
        ),
    },
    # The histogram needs --collect-tokens-histogram, retractions come with the first, others vary by build.
    optional=frozenset(
        (
            "kv_capacity_tokens",
            "prefill_tokens_per_second",
            "prefilling_mean",
            "first_tokens_total",
            "first_token_seconds_total",
            "prompt_tokens_variance",
            "preemptions_per_second",
            "batch_limit",
        )
    ),
    repeated_by=("pp_rank", "tp_rank", "moe_ep_rank"),
    parted_by=("priority",),
    # Not by default: an engine that gets the number of a rank that it lacks may stop.
    rank_label="dp_rank",
)
