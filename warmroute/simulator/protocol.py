"""OpenAI's chat and completions bodies: the fields that the simulator reads, and its answers as bytes.

`Call` and `Writer` are those of every API that generates text; the other APIs have a file each.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from warmroute.simulator.tokens import render_chat, token_ids_bytes

_Body = TypeVar("_Body")
DEFAULT_MAX_TOKENS: Final = 16
MOST_CHOICES: Final = 128
Turns = tuple[tuple[str, str], ...]
"""Roles and texts."""
DONE: Final = b"data: [DONE]\n\n"

if TYPE_CHECKING:
    from collections.abc import Callable


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


Form = Literal["chat", "completion", "response", "message", "sglang", "tgi"]
"""The form of a request's body and of its answer."""


class Call(NamedTuple):
    """A request as the simulator understands it."""

    form: Form
    model: str | None
    prompt: bytes
    """As rendered; never logged."""
    max_tokens: int
    stream: bool
    include_usage: bool = False
    choices: int = 1
    turns: Turns = ()
    """Of a response that is stored."""
    store: bool = False
    background: bool = False


class Usage(NamedTuple):
    """Tokens of one request, over all its choices."""

    prompt: int
    completion: int
    cached: int


class Writer(Protocol):
    """Writes one answer. Its text must need no escaping in JSON."""

    id: str

    def first(self, index: int) -> str:
        """What opens the stream of a choice."""

    def piece(self, index: int, text: str) -> str:
        """Some tokens' text of a choice."""

    def finish(self, index: int, text: str) -> str:
        """The end of a choice with this whole text."""

    def last(self, usage: Usage) -> str:
        """The end of the stream."""

    def full(self, texts: list[str], usage: Usage) -> bytes:
        """The whole answer, without a stream."""


_decode_chat = msgspec.json.Decoder(_Chat).decode
_decode_completion = msgspec.json.Decoder(_Completion).decode


def decoded(decode: Callable[[bytes], _Body], body: bytes) -> _Body:
    """Decode a request's body; raise BadRequestError for an invalid one."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError(f"the body is no valid request: {error}") from error


def output_limit(*limits: int | None) -> int:
    """Return the first limit of output tokens that is there, otherwise the default."""
    limit = next((each for each in limits if each is not None), DEFAULT_MAX_TOKENS)
    if limit < 1:
        raise BadRequestError(f"max_tokens must be at least 1, got {limit}")
    return limit


def read_chat(body: bytes) -> Call:
    """Read a chat request's body; raise BadRequestError for an invalid one."""
    parsed = decoded(_decode_chat, body)
    if not parsed.messages:
        raise BadRequestError("messages: at least one")
    turns = ((turn.role, text_of(turn.content)) for turn in parsed.messages)
    return _call("chat", parsed, render_chat(turns, bytes(parsed.tools)))


def read_completion(body: bytes) -> Call:
    """Read a completion request's body; raise BadRequestError for an invalid one."""
    parsed = decoded(_decode_completion, body)
    prompts = read_prompts(parsed.prompt, "prompt")
    if len(prompts) > 1:
        raise BadRequestError("prompt: one string or one list of token ids")
    return _call("completion", parsed, prompts[0])


def _call(form: Form, parsed: _Common, prompt: bytes) -> Call:
    choices = 1 if parsed.n is None else parsed.n
    if not 1 <= choices <= MOST_CHOICES:
        raise BadRequestError(f"n: {choices}; allowed: 1 to {MOST_CHOICES}")
    options = parsed.stream_options
    return Call(
        form,
        parsed.model,
        prompt,
        output_limit(parsed.max_completion_tokens, parsed.max_tokens),
        bool(parsed.stream),
        options is not None and options.include_usage,
        choices,
    )


def check_length(prompt_tokens: int, output_tokens: int, limit_tokens: int) -> None:
    """Raise BadRequestError for a request that the model's context does not hold."""
    if prompt_tokens + output_tokens > limit_tokens:
        raise BadRequestError(
            f"This model's maximum context length is {limit_tokens} tokens. However, you "
            f"requested {output_tokens} output tokens after a prompt of {prompt_tokens} tokens."
        )


def text_of(content: str | list[dict[str, Any]] | None) -> str:
    """Return a message's content as one text."""
    if content is None or isinstance(content, str):
        return content or ""
    # Parts that are no text take room in the prompt too, always the same for the same part.
    texts = (part.get("text") for part in content)
    return "".join(
        text if isinstance(text, str) else json.dumps(part) for text, part in zip(texts, content, strict=True)
    )


def read_prompts(prompt: object, field: str) -> list[bytes]:
    """Read a string, token ids, or a list of these; raise BadRequestError for another value."""
    several = isinstance(prompt, list) and bool(prompt) and all(isinstance(p, str | list) for p in prompt)
    prompts = []
    for each in prompt if several else (prompt,):  # type: ignore[attr-defined]
        if isinstance(each, str):
            prompts.append(each.encode("utf-8", "surrogatepass"))
        elif isinstance(each, list) and each and all(type(token) is int for token in each):
            prompts.append(token_ids_bytes(each))
        else:
            raise BadRequestError(f"{field}: allowed: a string, token ids, or a list of these")
    return prompts


class ChoicesWriter:
    """Writes answers to chat and completions."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:
        self._chat, self._usage = call.form == "chat", call.include_usage
        kind = "chat.completion" if self._chat else "text_completion"
        self.id = f"{'chatcmpl' if self._chat else 'cmpl'}-{request_id}"
        head = f'"id":{json.dumps(self.id)},"created":{created},"model":{json.dumps(model)}'
        streamed = f"{kind}.chunk" if self._chat else kind
        self._full_head = f'{{{head},"object":"{kind}"'
        self._chunk_head = f'data: {{{head},"object":"{streamed}"'

    def first(self, index: int) -> str:
        """The chunk that opens a chat stream; nothing for completions."""
        return self._chunk(index, '"delta":{"role":"assistant","content":""}') if self._chat else ""

    def piece(self, index: int, text: str) -> str:
        """A chunk with some tokens' text."""
        return self._chunk(index, f'"delta":{{"content":"{text}"}}' if self._chat else f'"text":"{text}"')

    def finish(self, index: int, text: str) -> str:  # noqa: ARG002 - other APIs repeat the text
        """The chunk with the finish reason."""
        return self._chunk(index, '"delta":{}' if self._chat else '"text":""', '"length"')

    def last(self, usage: Usage) -> str:
        """The usage if requested, and the end mark."""
        counted = f'{self._chunk_head},"choices":[],"usage":{_usage(usage)}}}\n\n' if self._usage else ""
        return f"{counted}{DONE.decode()}"

    def full(self, texts: list[str], usage: Usage) -> bytes:
        """The whole answer for a request without stream."""
        choices = ",".join(
            f'{{"index":{index},{self._content(text)},"logprobs":null,"finish_reason":"length"}}'
            for index, text in enumerate(texts)
        )
        return f'{self._full_head},"choices":[{choices}],"usage":{_usage(usage)}}}'.encode()

    def _content(self, text: str) -> str:
        return f'"message":{{"role":"assistant","content":"{text}"}}' if self._chat else f'"text":"{text}"'

    def _chunk(self, index: int, content: str, reason: str = "null") -> str:
        return f'{self._chunk_head},"choices":[{{"index":{index},{content},"finish_reason":{reason}}}]}}\n\n'


def _usage(usage: Usage) -> str:
    return (
        f'{{"prompt_tokens":{usage.prompt},"completion_tokens":{usage.completion},'
        f'"total_tokens":{usage.prompt + usage.completion},'
        f'"prompt_tokens_details":{{"cached_tokens":{usage.cached}}}}}'
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
