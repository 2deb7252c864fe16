"""OpenAI's Responses: bodies, stream events, and the responses that the engine has stored."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec

from warmroute.simulator.protocol import BadRequestError, Call, Turns, decoded, output_limit, text_of
from warmroute.simulator.tokens import render_chat

if TYPE_CHECKING:
    import asyncio

    from warmroute.simulator.protocol import Usage

MOST_STORED: Final = 10_000
"""Stored responses; the oldest go first."""


class _Request(msgspec.Struct):
    model: str | None = None
    input: str | list[dict[str, Any]] = ""
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    stream: bool | None = None
    store: bool | None = None
    background: bool | None = None
    tools: msgspec.Raw = msgspec.Raw(b"")


_decode: Final = msgspec.json.Decoder(_Request).decode


@dataclass(slots=True)
class Stored:
    """One stored response."""

    body: bytes
    """As GET shows it."""
    turns: Turns
    """The conversation up to here, without instructions."""
    background: bool = False
    task: asyncio.Task[None] | None = None
    """Of a background response that is not finished."""


class Responses:
    """The responses that one engine has stored, by id."""

    def __init__(self) -> None:
        self._stored: dict[str, Stored] = {}

    def __getitem__(self, response_id: str) -> Stored:
        """Return a response; raise BadRequestError (404) if it is not here."""
        stored = self._stored.get(response_id)
        if stored is None:
            message = f"Response with id '{response_id}' not found."
            raise BadRequestError(message, 404, "invalid_request_error")
        return stored

    def keep(self, response_id: str, stored: Stored) -> None:
        """Store a response, and replace an earlier state of it."""
        while response_id not in self._stored and len(self._stored) >= MOST_STORED:
            self.delete(next(iter(self._stored)))
        self._stored[response_id] = stored

    def cancel(self, response_id: str) -> bytes:
        """Cancel a background response; return it.

        Raises:
            BadRequestError: it is not here, or no background response.
        """
        stored = self[response_id]
        if not stored.background:
            raise BadRequestError("Cannot cancel a synchronous response.", 400, "invalid_request_error")
        if stored.task is not None:
            stored.task.cancel()
            stored.task = None
            stored.body = json.dumps({**json.loads(stored.body), "status": "cancelled"}).encode()
        return stored.body

    def delete(self, response_id: str) -> bytes:
        """Delete a response, and end it; return the answer. Raise BadRequestError if it is not here."""
        if (task := self[response_id].task) is not None:
            task.cancel()
        del self._stored[response_id]
        return json.dumps({"id": response_id, "object": "response", "deleted": True}).encode()

    def clear(self) -> None:
        """Delete all."""
        for response_id in tuple(self._stored):
            self.delete(response_id)


def read_response(body: bytes, responses: Responses) -> Call:
    """Read a request's body.

    Raises:
        BadRequestError: it is invalid, or the earlier response is not here.
    """
    parsed = decoded(_decode, body)
    background, store = bool(parsed.background), parsed.store is not False
    if background and (not store or parsed.stream):
        raise BadRequestError("background: allowed only with store, and without stream")
    earlier = () if parsed.previous_response_id is None else responses[parsed.previous_response_id].turns
    turns = (*earlier, *_turns(parsed.input))
    if not turns:
        raise BadRequestError("input: allowed: a text, or at least one item")
    lead = (("system", parsed.instructions),) if parsed.instructions else ()
    return Call(
        "response",
        parsed.model,
        render_chat((*lead, *turns), bytes(parsed.tools)),
        output_limit(parsed.max_output_tokens),
        bool(parsed.stream),
        turns=turns,
        store=store,
        background=background,
    )


def _turns(source: str | list[dict[str, Any]]) -> Turns:
    if isinstance(source, str):
        return (("user", source),) if source else ()
    return tuple((str(item.get("role") or item.get("type") or "user"), _item_text(item)) for item in source)


def _item_text(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(part, dict) for part in content)
    ):
        return text_of(content)
    return json.dumps(item)


class ResponseWriter:
    """Writes one response, and its stream of events."""

    def __init__(self, call: Call, request_id: str, model: str, created: int) -> None:
        self.id = f"resp_{request_id}"
        self._item = f"msg_{request_id}"
        self._head = {"id": self.id, "object": "response", "created_at": created, "model": model}
        self._options: dict[str, Any] = {
            "background": call.background,
            "max_output_tokens": call.max_tokens,
            "store": call.store,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": 1.0,
            "top_p": 1.0,
        }
        self._number = 0
        self._text = ""

    def begun(self) -> bytes:
        """The response before its end, as a background response shows it."""
        return json.dumps(self._response("in_progress", [])).encode()

    def first(self, index: int) -> str:
        """The events before any text."""
        response = self._response("in_progress", [])
        return "".join(
            (
                self._event("response.created", response=response),
                self._event("response.in_progress", response=response),
                self._event(
                    "response.output_item.added",
                    output_index=index,
                    item={**self._message(""), "status": "in_progress", "content": []},
                ),
                self._event("response.content_part.added", **self._part_at(index), part=_part("")),
            )
        )

    def piece(self, index: int, text: str) -> str:
        """Some tokens' text."""
        return self._event("response.output_text.delta", **self._part_at(index), delta=text, logprobs=[])

    def finish(self, index: int, text: str) -> str:
        """The end of the text."""
        self._text, at = text, self._part_at(index)
        return "".join(
            (
                self._event("response.output_text.done", **at, text=text, logprobs=[]),
                self._event("response.content_part.done", **at, part=_part(text)),
                self._event("response.output_item.done", output_index=index, item=self._message(text)),
            )
        )

    def last(self, usage: Usage) -> str:
        """The whole response again."""
        return self._event(
            "response.completed",
            response=self._response("completed", [self._message(self._text)], usage),
        )

    def full(self, texts: list[str], usage: Usage) -> bytes:
        """The whole response."""
        return json.dumps(self._response("completed", [self._message(texts[0])], usage)).encode()

    def _response(
        self, status: str, output: list[dict[str, Any]], usage: Usage | None = None
    ) -> dict[str, Any]:
        counted = (
            None
            if usage is None
            else {
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.cached},
                "output_tokens": usage.completion,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.prompt + usage.completion,
            }
        )
        return {**self._head, "status": status, "output": output, "usage": counted, **self._options}

    def _message(self, text: str) -> dict[str, Any]:
        content = [_part(text)]
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": content,
        }

    def _part_at(self, index: int) -> dict[str, Any]:
        return {"item_id": self._item, "output_index": index, "content_index": 0}

    def _event(self, kind: str, **fields: object) -> str:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return f"event: {kind}\ndata: {json.dumps(event)}\n\n"


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
