"""Duration of an engine's step: constants of measured engines, in `data/fits.json`.

`python -m bench.engine_model --fit` writes them; `data/NOTICE` states where the measured times come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from fleet.errors import WarmrouteError

DEFAULT_FIT: Final = "h100_sxm/tp4"
_FITTED_CHUNK_TOKENS: Final = 8192
"""The step's token budget under which the rows were measured."""


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
    """Names that `timing` knows: GPU, model and tensor parallelism; without a model, Llama-3.1-70B in FP8."""
    return tuple(_constants())


@cache
def timing(name: str = DEFAULT_FIT) -> Timing:
    """Return the fit called `name`; raise UnknownFitError for a name that is not there."""
    fits = _constants()
    if name not in fits:
        raise UnknownFitError(f"no fit is called {name!r}; there are {', '.join(fits)}")
    return Timing(**fits[name])


@cache
def _constants() -> dict[str, dict[str, float]]:
    text = (Path(__file__).parent / "data" / "fits.json").read_text(encoding="utf-8")
    constants: dict[str, dict[str, float]] = json.loads(text)
    return constants
