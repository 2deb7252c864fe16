"""OpenAI's embeddings: each input is a prefill, and equal inputs have equal vectors."""

from __future__ import annotations

import base64
import json
import struct
from math import sqrt
from random import Random
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from xxhash import xxh3_64_intdigest

from warmroute.simulator.protocol import BadRequestError, decoded, read_prompts

DIMENSIONS: Final = 64
_MOST_INPUTS: Final = 2048


class _Request(msgspec.Struct, kw_only=True):
    model: str | None = None
    input: Any
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: Annotated[int, msgspec.Meta(ge=1, le=4096)] = DIMENSIONS


_decode: Final = msgspec.json.Decoder(_Request).decode


class Inputs(NamedTuple):
    """The input of an embedding, and its form."""

    model: str | None
    prompts: list[bytes]
    base64: bool
    dimensions: int


def read_inputs(body: bytes) -> Inputs:
    """Read a request's body; raise BadRequestError for an invalid one."""
    parsed = decoded(_decode, body)
    prompts = read_prompts(parsed.input, "input")
    if len(prompts) > _MOST_INPUTS:
        raise BadRequestError(f"input: {len(prompts)} of them; allowed: at most {_MOST_INPUTS}")
    return Inputs(parsed.model, prompts, parsed.encoding_format == "base64", parsed.dimensions)


def embeddings_json(inputs: Inputs, model: str, tokens: int) -> bytes:
    """Return the answer to inputs; `tokens` are those of all."""
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(prompt, inputs)}
        for index, prompt in enumerate(inputs.prompts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return json.dumps({"object": "list", "model": model, "data": data, "usage": usage}).encode()


def _encoded(prompt: bytes, inputs: Inputs) -> list[float] | str:
    random = Random(xxh3_64_intdigest(prompt))
    numbers = [random.gauss(0.0, 1.0) for _ in range(inputs.dimensions)]
    length = sqrt(sum(number * number for number in numbers)) or 1.0
    vector = [number / length for number in numbers]
    if not inputs.base64:
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
