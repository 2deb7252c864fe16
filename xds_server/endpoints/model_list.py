"""An engine's answer to GET /v1/models: one reader for probes and for the lists of models. Pure.

A value of another type than in OpenAI's and vLLM's lists counts as unknown, and a model without a name is
left out.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MOST_LIST_BYTES: Final = 1_048_576
PATH: Final = "/v1/models"


class ListedModel(msgspec.Struct, gc=False):
    """One entry of the list."""

    id: Any = ""
    parent: Any = None
    """Of a LoRA adapter: its base model."""
    root: Any = None
    max_model_len: Any = None

    @property
    def context_tokens(self) -> int | None:
        """Its context length; None: unknown."""
        length = self.max_model_len
        return length if type(length) is int and length > 0 else None


class _Answer(msgspec.Struct):
    data: list[ListedModel]


_DECODER: Final = msgspec.json.Decoder(_Answer)


def models_of(body: bytes) -> list[ListedModel] | None:
    """Return the models that a body lists, each with a name; None: it is no list of models."""
    try:
        listed = _DECODER.decode(body).data
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return [model for model in listed if isinstance(model.id, str) and model.id]
