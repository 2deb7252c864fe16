"""Text Generation Inference. It exports neither its KV cache's use nor a time to first token.

Source: its metrics reference (https://huggingface.co/docs/text-generation-inference/reference/metrics).
Counters have no `_total`.
"""

from __future__ import annotations

from typing import Final

from xds_server.signals.scrape.history import histogram, metric
from xds_server.signals.scrape.rules import Table, moving, rate, ratio, total, variance

_PROMPT_BUCKETS, _PROMPT_SUM, _PROMPT_COUNT = histogram("tgi_request_input_length")
_, _ANSWER_SUM, _ANSWER_COUNT = histogram("tgi_request_generated_tokens")

TGI: Final = Table(
    marks=("tgi_",),
    fields={
        "queue_depth": total(metric("tgi_queue_size")),
        "running": total(metric("tgi_batch_current_size")),
        "prompt_tokens_per_second": rate(_PROMPT_SUM),
        "generation_tokens_per_second": rate(_ANSWER_SUM),
        "prompt_tokens_mean": ratio(_PROMPT_SUM, _PROMPT_COUNT),
        "prompt_tokens_variance": variance(_PROMPT_BUCKETS),
        "generation_tokens_mean": ratio(_ANSWER_SUM, _ANSWER_COUNT),
        "progress_total": moving(
            metric("tgi_request_count"),
            metric("tgi_request_success"),
            metric("tgi_batch_inference_success"),
            _ANSWER_SUM,
        ),
    },
)
