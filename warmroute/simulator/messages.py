"""Anthropic's Messages: bodies, stream events, counts of tokens and errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warmroute.simulator.protocol import BadRequestError, Call, decoded, output_limit, text_of
from warmroute.simulator.tokens import count_tokens, render_chat

if TYPE_CHECKING:
    from warmroute.simulator.protocol import Usage

_KINDS: Final = {400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error"}


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]]


class _Request(msgspec.Struct, kw_only=True):
    model: str | None = None
    max_tokens: int | None = None
    messages: list[_Message]
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    tools: msgspec.Raw = msgspec.Raw(b"")


_decode: Final = msgspec.json.Decoder(_Request).decode


def read_message(body: bytes) -> Call:
    """Read a request's body; raise BadRequestError for an invalid one."""
    parsed = decoded(_decode, body)
    if parsed.max_tokens is None:
        raise BadRequestError("max_tokens: required")
    return Call(
        "message", parsed.model, _prompt(parsed), output_limit(parsed.max_tokens), bool(parsed.stream)
    )


def read_count(body: bytes) -> bytes:
    """Return the answer to a request for a count of tokens; raise BadRequestError for an invalid one."""
    return json.dumps({"input_tokens": count_tokens(_prompt(decoded(_decode, body)))}).encode()


def _prompt(parsed: _Request) -> bytes:
    if not parsed.messages:
        raise BadRequestError("messages: at least one")
    lead = [] if parsed.system is None else [("system", text_of(parsed.system))]
    turns = [(turn.role, text_of(turn.content)) for turn in parsed.messages]
    return render_chat(lead + turns, bytes(parsed.tools))


class MessageWriter:
    """Writes one message, and its stream of events. Cached tokens do not count as input tokens."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:  # noqa: ARG002
        self.id = f"msg_{request_id}"
        self._model = model
        self._prompt_tokens = count_tokens(call.prompt)

    def first(self, index: int) -> str:
        """The events before any text."""
        usage = {"input_tokens": self._prompt_tokens, "output_tokens": 0}
        block = {"type": "text", "text": ""}
        return "".join(
            (
                _event("message_start", message=self._message([], None, usage)),
                _event("content_block_start", index=index, content_block=block),
                _event("ping"),
            )
        )

    def piece(self, index: int, text: str) -> str:
        """Some tokens' text."""
        return _event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})

    def finish(self, index: int, text: str) -> str:  # noqa: ARG002 - other APIs repeat the text
        """The end of the text."""
        return _event("content_block_stop", index=index)

    def last(self, usage: Usage) -> str:
        """The reason of the end, and the usage."""
        delta = {"stop_reason": "max_tokens", "stop_sequence": None}
        return _event("message_delta", delta=delta, usage=_usage(usage)) + _event("message_stop")

    def full(self, texts: list[str], usage: Usage) -> bytes:
        """The whole message."""
        content = [{"type": "text", "text": texts[0]}]
        return json.dumps(self._message(content, "max_tokens", _usage(usage))).encode()

    def _message(
        self, content: list[dict[str, str]], reason: str | None, usage: dict[str, int]
    ) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }


def _event(kind: str, **fields: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"


def messages_error(message: str, status: int) -> bytes:
    """Anthropic's error object."""
    kind = _KINDS.get(status, "api_error")
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
