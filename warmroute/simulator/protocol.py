"""OpenAI's chat and completions bodies: the fields that the simulator reads, and its answers as bytes."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

import msgspec

from warmroute.simulator.tokens import render_chat, token_ids_bytes

DEFAULT_MAX_TOKENS: Final = 16
DONE: Final = b"data: [DONE]\n\n"


class BadRequestError(Exception):
    """The client's request cannot be served; carries the fields of OpenAI's error object."""

    def __init__(self, message: str, status: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None


class _Common(msgspec.Struct, kw_only=True):
    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None


class _Chat(_Common, kw_only=True):
    messages: list[_Message]
    tools: msgspec.Raw = msgspec.Raw(b"")


class _Completion(_Common, kw_only=True):
    prompt: Any
    """A string, token ids, or a list of one of these."""


class Call(NamedTuple):
    """A request as the simulator understands it."""

    chat: bool
    model: str | None
    prompt: bytes
    """As rendered; never logged."""
    max_tokens: int
    stream: bool
    include_usage: bool


_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode


def read_call(body: bytes, *, chat: bool) -> Call:
    """Read a request's body; raise BadRequestError for an invalid one."""
    try:
        parsed: _Chat | _Completion = _decode_chat(body) if chat else _decode_completion(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"the body is no valid request: {error}") from error
    if parsed.n not in (None, 1):
        raise BadRequestError("n: the simulator gives one choice")
    limit = parsed.max_completion_tokens if parsed.max_completion_tokens is not None else parsed.max_tokens
    if limit is None:
        limit = DEFAULT_MAX_TOKENS
    if limit < 1:
        raise BadRequestError(f"max_tokens must be at least 1, got {limit}")
    options = parsed.stream_options
    return Call(
        chat=chat,
        model=parsed.model,
        prompt=_chat_prompt(parsed) if isinstance(parsed, _Chat) else _completion_prompt(parsed.prompt),
        max_tokens=limit,
        stream=bool(parsed.stream),
        include_usage=options is not None and options.include_usage,
    )


def check_length(prompt_tokens: int, output_tokens: int, limit_tokens: int) -> None:
    """Raise BadRequestError for a request that the model's context does not hold."""
    if prompt_tokens + output_tokens > limit_tokens:
        raise BadRequestError(
            f"This model's maximum context length is {limit_tokens} tokens. However, you "
            f"requested {output_tokens} output tokens after a prompt of {prompt_tokens} tokens."
        )


def _chat_prompt(parsed: _Chat) -> bytes:
    if not parsed.messages:
        raise BadRequestError("messages: at least one")
    return render_chat(((turn.role, _text(turn.content)) for turn in parsed.messages), bytes(parsed.tools))


def _text(content: str | list[dict[str, Any]] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    # Parts that are no text take room in the prompt too, always the same for the same part.
    texts = (part.get("text") for part in content)
    return "".join(
        text if isinstance(text, str) else json.dumps(part) for text, part in zip(texts, content, strict=True)
    )


def _completion_prompt(prompt: object) -> bytes:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass")
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return token_ids_bytes(prompt)
    raise BadRequestError("prompt: one string or one list of token ids")


class Writer:
    """Writes one answer. Its text must need no escaping in JSON."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:
        kind = "chat.completion" if call.chat else "text_completion"
        self._chat = call.chat
        self.id = f"{'chatcmpl' if call.chat else 'cmpl'}-{request_id}"
        head = f'"id":{json.dumps(self.id)},"created":{created},"model":{json.dumps(model)}'
        streamed = f"{kind}.chunk" if call.chat else kind
        self._full_head = f'{{{head},"object":"{kind}"'
        self._chunk_head = f'data: {{{head},"object":"{streamed}"'

    def first(self) -> str:
        """The chunk that opens a chat stream; nothing for completions."""
        if not self._chat:
            return ""
        delta = '{"role":"assistant","content":""}'
        return f'{self._chunk_head},"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}\n\n'

    def piece(self, text: str) -> str:
        """A chunk with some tokens' text."""
        said = f'"delta":{{"content":"{text}"}}' if self._chat else f'"text":"{text}"'
        return f'{self._chunk_head},"choices":[{{"index":0,{said},"finish_reason":null}}]}}\n\n'

    def last(self, usage: str | None) -> str:
        """The chunk with the finish reason, the usage if requested, and the end mark."""
        said = '"delta":{}' if self._chat else '"text":""'
        end = f'{self._chunk_head},"choices":[{{"index":0,{said},"finish_reason":"length"}}]}}\n\n'
        counted = f'{self._chunk_head},"choices":[],"usage":{usage}}}\n\n' if usage else ""
        return f"{end}{counted}{DONE.decode()}"

    def full(self, text: str, usage: str) -> bytes:
        """The whole answer for a request without stream."""
        said = f'"message":{{"role":"assistant","content":"{text}"}}' if self._chat else f'"text":"{text}"'
        choice = f'{{"index":0,{said},"logprobs":null,"finish_reason":"length"}}'
        return f'{self._full_head},"choices":[{choice}],"usage":{usage}}}'.encode()


def usage_json(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> str:
    """OpenAI's usage object."""
    return (
        f'{{"prompt_tokens":{prompt_tokens},"completion_tokens":{completion_tokens},'
        f'"total_tokens":{prompt_tokens + completion_tokens},'
        f'"prompt_tokens_details":{{"cached_tokens":{cached_tokens}}}}}'
    )


def models_json(model: str, created: int, limit_tokens: int) -> bytes:
    """The list of models, with one in it."""
    card = {
        "id": model,
        "object": "model",
        "created": created,
        "owned_by": "warmroute-simulator",
        "root": model,
        "parent": None,
        "max_model_len": limit_tokens,
    }
    return json.dumps({"object": "list", "data": [card]}).encode()


def error_json(message: str, kind: str, status: int) -> bytes:
    """OpenAI's error object, as vLLM fills it."""
    return json.dumps(
        {"error": {"message": message, "type": kind, "param": None, "code": status}}, separators=(",", ":")
    ).encode()
