"""`/generate`, which two engines have: SGLang's body has `text` or `input_ids`, TGI's has `inputs`.

SGLang's pieces carry the whole text so far, and its stream ends by `[DONE]`. TGI's pieces carry one token
each, and the last of them the whole text.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warmroute.simulator.protocol import DONE, BadRequestError, Call, decoded, output_limit, read_prompts
from warmroute.simulator.tokens import BYTES_PER_TOKEN, count_tokens

if TYPE_CHECKING:
    from warmroute.simulator.protocol import Usage

_SGLANG_MAX_TOKENS: Final = 128
_TGI_MAX_TOKENS: Final = 100


class _Sampling(msgspec.Struct):
    max_new_tokens: int | None = None
    n: int = 1


class _Parameters(msgspec.Struct):
    max_new_tokens: int | None = None
    details: bool = False


class _Request(msgspec.Struct):
    text: Any = None
    input_ids: Any = None
    sampling_params: _Sampling = msgspec.field(default_factory=_Sampling)
    inputs: str | None = None
    parameters: _Parameters = msgspec.field(default_factory=_Parameters)
    stream: bool = False


_decode: Final = msgspec.json.Decoder(_Request).decode


def read_generate(body: bytes) -> Call:
    """Read a request's body; raise BadRequestError for an invalid one."""
    parsed = decoded(_decode, body)
    if parsed.inputs is not None:
        return _tgi(parsed, stream=parsed.stream)
    prompt = parsed.text if parsed.text is not None else parsed.input_ids
    if prompt is None:
        raise BadRequestError("allowed: text or input_ids (SGLang), or inputs (TGI)")
    prompts, sampling = read_prompts(prompt, "text"), parsed.sampling_params
    if len(prompts) > 1 or sampling.n != 1:
        raise BadRequestError("the simulator gives one answer: allowed: one text, and n of 1")
    limit = output_limit(sampling.max_new_tokens, _SGLANG_MAX_TOKENS)
    return Call("sglang", None, prompts[0], limit, parsed.stream)


def read_generate_stream(body: bytes) -> Call:
    """Read the body of TGI's `/generate_stream`; raise BadRequestError for an invalid one."""
    parsed = decoded(_decode, body)
    if parsed.inputs is None:
        raise BadRequestError("inputs: required")
    return _tgi(parsed, stream=True)


def _tgi(parsed: _Request, *, stream: bool) -> Call:
    limit = output_limit(parsed.parameters.max_new_tokens, _TGI_MAX_TOKENS)
    prompt = read_prompts(parsed.inputs, "inputs")[0]
    return Call("tgi", None, prompt, limit, stream, include_usage=parsed.parameters.details)


class SglangWriter:
    """Writes SGLang's answer."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:  # noqa: ARG002
        self.id = request_id
        self._prompt_tokens = count_tokens(call.prompt)
        self._text = ""

    def first(self, index: int) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    def piece(self, index: int, text: str) -> str:  # noqa: ARG002
        """The text so far."""
        self._text += text
        meta = {
            "id": self.id,
            "finish_reason": None,
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": len(self._text) // BYTES_PER_TOKEN,
        }
        return _data({"text": self._text, "meta_info": meta})

    def finish(self, index: int, text: str) -> str:  # noqa: ARG002
        """Nothing: the usage comes with the end."""
        return ""

    def last(self, usage: Usage) -> str:
        """The whole answer, and the end mark."""
        return _data(self._answer(self._text, usage)) + DONE.decode()

    def full(self, texts: list[str], usage: Usage) -> bytes:
        """The whole answer."""
        return json.dumps(self._answer(texts[0], usage)).encode()

    def _answer(self, text: str, usage: Usage) -> dict[str, Any]:
        meta = {
            "id": self.id,
            "finish_reason": {"type": "length", "length": usage.completion},
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "cached_tokens": usage.cached,
        }
        return {"text": text, "meta_info": meta}


class TgiWriter:
    """Writes TGI's answer."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:  # noqa: ARG002
        self.id = request_id
        self._details = call.include_usage
        self._sent = 0
        self._newest = ""

    def first(self, index: int) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    def piece(self, index: int, text: str) -> str:  # noqa: ARG002
        """An event a token; the newest one waits, since the last carries the whole text."""
        text = self._newest + text
        ends = range(BYTES_PER_TOKEN, len(text), BYTES_PER_TOKEN)
        events = [self._token(text[end - BYTES_PER_TOKEN : end]) for end in ends]
        self._newest = text[-BYTES_PER_TOKEN:]
        return "".join(events)

    def finish(self, index: int, text: str) -> str:  # noqa: ARG002
        """The last token, with the whole text."""
        details = {"finish_reason": "length", "generated_tokens": self._sent + 1, "seed": None}
        return self._token(self._newest, text, details)

    def last(self, usage: Usage) -> str:  # noqa: ARG002
        """Nothing: the stream just ends."""
        return ""

    def full(self, texts: list[str], usage: Usage) -> bytes:
        """The whole answer."""
        answer: dict[str, Any] = {"generated_text": texts[0]}
        if self._details:
            answer["details"] = {
                "finish_reason": "length",
                "generated_tokens": usage.completion,
                "seed": None,
                "prefill": [],
                "tokens": [],
            }
        return json.dumps(answer).encode()

    def _token(self, text: str, whole: str | None = None, details: dict[str, Any] | None = None) -> str:
        self._sent += 1
        token = {"id": self._sent, "text": text, "logprob": 0.0, "special": False}
        event = {"index": self._sent, "token": token, "generated_text": whole, "details": details}
        return _data(event)


def _data(event: dict[str, Any]) -> str:
    return f"data: {json.dumps(event)}\n\n"
