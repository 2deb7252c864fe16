"""Text Embeddings Inference. It has no KV cache, and its page tells no running requests.

Source: `router/src/http/server.rs` and `core/src/queue.rs` of huggingface/text-embeddings-inference. Counters
have no `_total`.
"""

from __future__ import annotations

from typing import Final

from xds_server.signals.scrape.history import histogram, metric
from xds_server.signals.scrape.rules import Table, moving, rate, ratio, total, variance

_PROMPT_BUCKETS, _PROMPT_SUM, _PROMPT_COUNT = histogram("te_request_input_length")

TEI: Final = Table(
    marks=("te_",),
    fields={
        "queue_depth": total(metric("te_queue_size")),
        "prompt_tokens_per_second": rate(_PROMPT_SUM),
        "prompt_tokens_mean": ratio(_PROMPT_SUM, _PROMPT_COUNT),
        "prompt_tokens_variance": variance(_PROMPT_BUCKETS),
        "progress_total": moving(
            metric("te_request_count"),
            metric("te_request_success"),
            metric("te_embed_count"),
            metric("te_embed_success"),
            _PROMPT_COUNT,
        ),
    },
)
