"""llama.cpp's `llama-server` with `--metrics`, and `/slots` as the second page (off with `--no-slots`).

Names as of build 11434. `kv_cache_usage_ratio` is gone, so the slots show what the KV cache holds: the tokens
of the requests under way against the slots' contexts. With `--kv-unified` the slots share one context that
each states as its own, and the share reads too low.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from xds_server.signals.scrape.history import metric
from xds_server.signals.scrape.rules import Table, moving, rate, ratio, total

if TYPE_CHECKING:
    from collections.abc import Mapping

_COMPUTED = metric("llamacpp:prompt_tokens_total")
_CACHED = metric("llamacpp:prompt_tokens_cached_total")
_PREFILLING = metric("llamacpp:prompt_seconds_total")
_GENERATED = metric("llamacpp:tokens_predicted_total")


class _Slot(msgspec.Struct):
    """What is read of a slot; where there may be a prompt's text, nothing is."""

    n_ctx: int | None = None
    is_processing: bool = False
    n_prompt_tokens: int | None = None
    next_token: Any = None


_DECODER: Final = msgspec.json.Decoder(list[_Slot])


def read_slots(page: bytes) -> Mapping[str, float | None]:
    """Turn the slots into fields of a load.

    Raises:
        ValueError: it is not llama.cpp's list of slots.
    """
    slots = _DECODER.decode(page)
    contexts = [slot.n_ctx for slot in slots if slot.n_ctx is not None]
    capacity = sum(contexts) if contexts and len(contexts) == len(slots) else 0
    # A slot that never worked has no tokens; one that works must.
    used = [_tokens(slot) for slot in slots if slot.is_processing]
    counted = [tokens for tokens in used if tokens is not None]
    complete = capacity > 0 and len(counted) == len(used)
    return {
        "memory_used_ratio": min(sum(counted) / capacity, 1.0) if complete else None,
        "kv_capacity_tokens": capacity or None,
        "batch_limit": len(slots) or None,
    }


def _tokens(slot: _Slot) -> int | None:
    """Tokens in a slot's context; `next_token` is a list in new builds and an object in old ones."""
    if slot.n_prompt_tokens is None:
        return None
    each = slot.next_token if isinstance(slot.next_token, list) else [slot.next_token]
    decoded = [entry.get("n_decoded") for entry in each if isinstance(entry, dict)]
    return slot.n_prompt_tokens + sum(count for count in decoded if isinstance(count, int))


LLAMA_CPP: Final = Table(
    marks=("llamacpp:",),
    fields={
        "queue_depth": total(metric("llamacpp:requests_deferred")),
        "running": total(metric("llamacpp:requests_processing")),
        "prefix_hit_ratio": ratio(_CACHED, _CACHED, _COMPUTED, most=1.0),
        "prefill_tokens_per_second": ratio(_COMPUTED, _PREFILLING),
        "prefilling_mean": rate(_PREFILLING),
        "prompt_tokens_per_second": rate(_COMPUTED, _CACHED),
        "generation_tokens_per_second": rate(_GENERATED),
        "progress_total": moving(_COMPUTED, _CACHED, _GENERATED, metric("llamacpp:n_decode_total")),
    },
    optional=frozenset(("prefix_hit_ratio", "prompt_tokens_per_second")),  # cached tokens: of new builds
    second_page="slots",
    read_second=read_slots,
)
