"""Body bytes to model, salt, adapter and canonical prompt text, decoding only what routing needs.

The canonical order is: the request's own chat template, documents, tools, the system prompt, the name of a
stored conversation, then the messages in their order. Engines' chat templates write them in this order,
whatever the order of keys in the body. Tools and system prompt stay while a conversation grows, and messages
are only added, so the text of each turn begins with the text of the turn before. Where the engine stores the
messages, it begins with the part that all turns share. Neither the order of keys nor white space changes the
text, up to the values that are read of each lead.

The leading part of a body yields a byte prefix of the whole body's text, unless a lead follows the cut. Its
model and salt may be missing, because some clients send the messages first.

All work is bounded by the body's length and a fixed number of values: see `ext_proc.prompt.outline`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ext_proc.prompt import text
from ext_proc.prompt.cut import add_cut, add_rich, add_value
from ext_proc.prompt.envelope import (
    STORED,
    EnvelopeReader,
    SessionFields,
    adapter_of,
    body_model_of,
    is_reference,
    leads_of,
    plain_path,
    prompt_key,
    salt_of,
)
from ext_proc.prompt.lines import lines_pattern, strip_lines
from ext_proc.prompt.outline import leading_members, outline_of
from ext_proc.prompt.parts import add_content
from ext_proc.prompt.path import model_of
from ext_proc.prompt.prompts import add_decoded, add_media
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ext_proc.prompt.envelope import Chat, Envelope, Members
    from ext_proc.prompt.outline import OpenContainer, Outline

_MEDIA: Final = ("image_data", "multimodal_data", "features", "content_parts", "conversation")
"""Leads that count as digests: images of SGLang, llama.cpp and vLLM's tokens-in API, and a stored
conversation, whose short name stands for all that its turns share."""

__all__ = ["BodyReader", "ParsedBody", "Prompt", "Unreadable"]


class Prompt(NamedTuple):
    """A request as routing reads it."""

    model: str | None
    """None: absent, or not in the leading part of a cut body."""
    salt: str
    """`cache_salt`, "" when absent."""
    text: bytes
    """Canonical prompt bytes in order: what is hashed."""
    complete: bool
    """False: only the leading part of the body was there."""
    adapter: str = ""
    """The LoRA adapter, "" when no field of its own names one: vLLM's clients name it as the model."""
    session: str = ""
    """The string in the first of the sessions' fields that has one, "" when absent."""
    tokens: int | None = None
    """The number of token ids; None: the prompt is not made of ids."""


class ParsedBody(NamedTuple):
    """The result of one pass over a body, for all its readers."""

    prompt: Prompt | Unreadable
    envelope: Members | None = None
    """The top-level members; None where no whole object is there."""
    body: bytes = b""
    """Without its content coding; empty where none is read."""


class BodyReader:
    """Reads bodies by one schema, each of them once. Single-threaded."""

    def __init__(
        self, session_fields: Sequence[str] = (), stripped_lines: Sequence[str] = (), *, one_pass: bool = True
    ) -> None:
        """`session_fields` name body fields, inner ones with dots; the first one that is there counts.

        `stripped_lines` are beginnings of lines of a system prompt that do not count, in addition to
        `STRIPPED_LINES`. `one_pass`: nobody needs a chat's messages as they are spelled.
        """
        self._one_pass = one_pass and not any(f.partition(".")[0] == "messages" for f in session_fields)
        self._envelopes = EnvelopeReader(session_fields)
        self._session = SessionFields(session_fields) if session_fields else None
        self._lines = lines_pattern(stripped_lines)

    def read(self, body: bytes, *, complete: bool, path: str = "") -> ParsedBody:
        """Read a request body, or its leading part if not `complete`. Never raises.

        `path` is the request's; empty if unknown.
        """
        envelope: Members | None = None
        try:
            leading, rich = leading_members(body, sure=complete)
            complete = complete and len(leading) == len(body)
            if complete and not rich and self._one_pass and (chat := self._envelopes.read_chat(body)):
                envelope = chat
                return ParsedBody(self._chat(chat, path), chat, body)
            outline = None if complete else outline_of(leading)
            containers = [] if outline is None else outline.containers
            rich = rich and (outline is None or outline.is_rich)
            if containers and not containers[0].is_object:
                return ParsedBody(Unreadable.WRONG_SHAPE, None, body)
            members = self._envelopes.read(containers[0].closed if containers else leading, rich=rich)
            if complete:
                envelope = members
            pieces: text.Pieces = []
            key = _add_leads(pieces, members, path, containers, rich=rich)
            prompt_at = len(pieces)
            tokens = None if key is None else _add_prompt(pieces, members, key, outline, rich=rich)
            strip_lines(pieces, prompt_at, self._lines)
            return ParsedBody(self._prompt(pieces, members, path, tokens, complete=complete), envelope, body)
        except UnreadableError as error:
            return ParsedBody(error.reason, envelope, body)
        except RecursionError:
            return ParsedBody(Unreadable.TOO_DEEP, envelope, body)
        except msgspec.ValidationError:
            return ParsedBody(Unreadable.WRONG_SHAPE, envelope, body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ParsedBody(Unreadable.NOT_JSON, envelope, body)

    def _chat(self, chat: Chat, path: str) -> Prompt | Unreadable:
        """Return the prompt of a chat whose messages are decoded."""
        plain_path(path)
        pieces: text.Pieces = []
        for name, raw in leads_of(chat):
            _add_lead(pieces, name, raw, rich=False)
        prompt_at = len(pieces)
        add_decoded(pieces, chat.messages)
        strip_lines(pieces, prompt_at, self._lines)
        return self._prompt(pieces, chat, path, None)

    def _prompt(
        self,
        pieces: text.Pieces,
        members: Members,
        path: str,
        tokens: int | None,
        *,
        complete: bool = True,
    ) -> Prompt | Unreadable:
        """Join a prompt's pieces."""
        joined = b"".join(pieces)
        if not joined:
            return Unreadable.NO_PROMPT
        session = "" if self._session is None else self._session.of(members)
        model, salt = model_of(path, body_model_of(members)), salt_of(members)
        return Prompt(model, salt, joined, complete, adapter_of(members), session, tokens)


def _add_leads(
    pieces: text.Pieces, envelope: Envelope, path: str, containers: list[OpenContainer], *, rich: bool
) -> str | None:
    """Add the leads that are present; return the key of the prompt, None if that is still to come."""
    top = containers[0] if containers else None
    open_key = None if top is None else top.key
    if open_key in ("text", "prompt") and len(containers) > 1 and containers[1].is_object:
        open_key = None  # the Responses API's
    key = prompt_key(envelope, plain_path(path), open_key)
    if key is None and top is None:
        raise UnreadableError(Unreadable.NO_PROMPT)
    for name, raw in leads_of(envelope):
        # As long as the prompt is to come, tools and instructions may be, too.
        if name in STORED and key is None:
            continue
        if name != "prompt" or is_reference(envelope, open_key):
            _add_lead(pieces, name, raw, rich=rich)
    if key is None and top is not None and top.partial is not None and top.key in ("system", "instructions"):
        pieces += (text.LEAD, top.key.encode(), text.ROLE_END, top.partial)
    return key


def _add_prompt(
    pieces: text.Pieces, envelope: Envelope, key: str, outline: Outline | None, *, rich: bool
) -> int | None:
    """Add the prompt or its leading part; return the number of its token ids."""
    chat = key == "messages"
    if outline is None or not outline.containers or outline.containers[0].key != key:
        return add_value(pieces, getattr(envelope, key), chat=chat, rich=rich)
    if len(outline.containers) > 1:
        return add_cut(pieces, outline, chat=chat, rich=rich)
    partial = outline.containers[0].partial
    if partial is not None:
        if chat:
            raise UnreadableError(Unreadable.WRONG_SHAPE)
        pieces.append(partial)
    return None


def _add_lead(pieces: text.Pieces, name: str, raw: msgspec.Raw, *, rich: bool) -> None:
    pieces += (text.LEAD, name.encode(), text.ROLE_END)
    if rich and add_rich(pieces, raw):
        return
    if name in _MEDIA:
        add_media(pieces, raw)
    elif name in ("system", "instructions"):
        add_content(pieces, raw)
    else:
        pieces.append(text.canonical(raw))
