"""Duration of an engine's step: measured fits, read from `data/derived_fits.json`.

`data/NOTICE` states where the numbers come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from fleet.errors import WarmrouteError

DEFAULT_FIT: Final = "h100_sxm/tp4"
_REFERENCE_FIT: Final = "h100_sxm/tp4"
_SOLO_SECTION: Final = "aisimulate_predict_h100_70b_fp8_vllm_conc1"
_SOLO_SYSTEM: Final = "h100_sxm"
_FITTED_CHUNK_TOKENS: Final = 8192
"""The step's token budget under which the solo times to first token are read."""


class UnknownFitError(WarmrouteError):
    """No fit has this name."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The constants of one step, all in seconds of a real engine until `faster` divides them."""

    step_seconds: float
    """What every step costs."""
    sequence_seconds: float
    """For each sequence in the batch."""
    kv_token_seconds: float
    """For each token of KV cache that the decoding sequences read."""
    prefill_token_seconds: float
    """For each prompt token computed."""
    attention_pair_seconds: float
    """For each pair of a computed prompt token and a token at or before it: the superlinear part."""

    def step(self, sequences: int, kv_tokens: int, prefill_tokens: int, attention_pairs: int) -> float:
        """Seconds of one step."""
        return (
            self.step_seconds
            + self.sequence_seconds * sequences
            + self.kv_token_seconds * kv_tokens
            + self.prefill_token_seconds * prefill_tokens
            + self.attention_pair_seconds * attention_pairs
        )

    def chunk(self, start: int, tokens: int) -> float:
        """Seconds that the prefill of `tokens` after `start` adds to its steps."""
        return self.prefill_token_seconds * tokens + self.attention_pair_seconds * pairs(start, tokens)

    def prefill(self, tokens: int, chunk_tokens: int = _FITTED_CHUNK_TOKENS) -> float:
        """Seconds from start to first token for a cold prompt alone on the engine, in chunks."""
        seconds = 0.0
        for start in range(0, tokens, chunk_tokens):
            chunk = min(chunk_tokens, tokens - start)
            seconds += self.step(1, 0, chunk, pairs(start, chunk))
        return seconds

    def faster(self, factor: float) -> Timing:
        """The same engine, `factor` times as fast."""
        return Timing(
            self.step_seconds / factor,
            self.sequence_seconds / factor,
            self.kv_token_seconds / factor,
            self.prefill_token_seconds / factor,
            self.attention_pair_seconds / factor,
        )


def pairs(start: int, tokens: int) -> int:
    """Pairs of token and earlier-or-same token when `tokens` are computed after `start` are there."""
    return tokens * start + tokens * (tokens + 1) // 2


def fit_names() -> tuple[str, ...]:
    """Names that `timing` knows."""
    return tuple(_document()["fits"])


@cache
def timing(name: str = DEFAULT_FIT) -> Timing:
    """Return the fit called `name`; raise UnknownFitError for a name that is not there.

    The attention term is the least-squares factor of what the solo times to first token need beyond the
    linear part. Where no solo times exist (H200, TP2) it is that of H100 TP4, scaled by the prefill rates.
    """
    fits = _document()["fits"]
    if name not in fits:
        raise UnknownFitError(f"no fit is called {name!r}; there are {', '.join(fits)}")
    linear = _linear(fits[name])
    solo = _solo_seconds(name)
    if solo:
        return replace(linear, attention_pair_seconds=_attention(linear, solo))
    reference = timing(_REFERENCE_FIT)
    ratio = linear.prefill_token_seconds / reference.prefill_token_seconds
    return replace(linear, attention_pair_seconds=reference.attention_pair_seconds * ratio)


def _linear(fit: dict[str, float]) -> Timing:
    return Timing(
        step_seconds=fit["a_ms"] / 1e3,
        sequence_seconds=fit["b_ms_per_seq"] / 1e3,
        kv_token_seconds=fit["d_ns_per_kv_tok"] / 1e9,
        prefill_token_seconds=1 / fit["prefill_tok_s"],
        attention_pair_seconds=0.0,
    )


def _solo_seconds(name: str) -> dict[int, float]:
    system, _, parallel = name.partition("/")
    if system != _SOLO_SYSTEM:
        return {}
    predicted = _document()[_SOLO_SECTION].get(parallel, {}).get("ttft_ms", {})
    return {int(tokens): ms / 1e3 for tokens, ms in predicted.items()}


def _attention(linear: Timing, solo: dict[int, float]) -> float:
    """Least squares through the origin: sum(rest * pairs) / sum(pairs ** 2)."""
    over = sum((seconds - linear.prefill(tokens)) * pairs(0, tokens) for tokens, seconds in solo.items())
    return max(0.0, over / sum(pairs(0, tokens) ** 2 for tokens in solo))


@cache
def _document() -> dict[str, Any]:
    text = (Path(__file__).parent / "data" / "derived_fits.json").read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document
