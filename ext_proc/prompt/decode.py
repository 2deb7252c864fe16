"""Body bytes to model, salt, adapter and canonical prompt text, decoding only what routing needs.

The canonical order is: a chat template of the request's own, documents, tools, the system prompt, what a
conversation is stored under, then the messages in theirs. That is the order in which engines' chat templates
write them, whatever the order of keys in the body; and since tools and system prompt stay as they are while a
conversation grows, and messages are only added, the text of each turn begins with the text of the one before,
or, where the engine stores the messages, with what it has in common with all its turns.
Neither the order of keys nor white space changes the text, up to the values that are read of each lead.

The leading part of a body yields a byte prefix of the whole body's text, unless something that leads stands
behind the cut: it cannot know that. Its model and salt may be missing, since some clients send the
messages first.

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
    SessionField,
    adapter_of,
    body_model_of,
    is_reference,
    leads_of,
    prompt_key,
    salt_of,
)
from ext_proc.prompt.outline import leading_members, outline_of
from ext_proc.prompt.parts import add_content
from ext_proc.prompt.path import model_of
from ext_proc.prompt.prompts import add_media
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from ext_proc.prompt.envelope import Envelope
    from ext_proc.prompt.outline import OpenContainer, Outline

_MEDIA: Final = ("image_data", "multimodal_data", "features", "content_parts", "conversation")
"""What leads and stands as digests: images of SGLang, llama.cpp and vLLM's tokens-in API, and a stored
conversation, whose name is short for all that its turns have in common."""

__all__ = ["BodyReader", "ParsedBody", "Prompt", "Unreadable"]


class Prompt(NamedTuple):
    """What routing reads of a request."""

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
    """The field that was asked for by name, "" when absent."""
    tokens: int | None = None
    """How many token ids there are; None: the prompt is not made of ids."""


class ParsedBody(NamedTuple):
    """What one pass over a body gives to all who read it."""

    prompt: Prompt | Unreadable
    envelope: Envelope | None = None
    """The top-level members; None where no whole object is there."""
    body: bytes = b""
    """Without its content coding; empty where none is read."""


class BodyReader:
    """Reads bodies by one schema, each of them once. Single-threaded."""

    def __init__(self, session_field: str = "") -> None:
        """`session_field` names a body field, inner ones with dots; empty: none is read."""
        self._envelopes = EnvelopeReader(session_field)
        self._session = SessionField(session_field) if session_field else None

    def read(self, body: bytes, *, complete: bool, path: str = "") -> ParsedBody:
        """Read a request body, or its leading part if not `complete`. Never raises.

        `path` is the request's, as far as it is known.
        """
        envelope: Envelope | None = None
        try:
            leading, rich = leading_members(body, sure=complete)
            if len(leading) < len(body):
                leading_body, complete = leading, False
            else:
                leading_body = body
            outline = None if complete else outline_of(leading_body)
            opened = [] if outline is None else outline.opened
            if opened and not opened[0].is_object:
                return ParsedBody(Unreadable.WRONG_SHAPE, None, body)
            rich = rich and (outline is None or outline.is_rich)
            members = self._envelopes.read(opened[0].closed if opened else leading_body, rich=rich)
            if complete:
                envelope = members
            pieces: text.Pieces = []
            key = _add_leads(pieces, members, path, opened, rich=rich)
            tokens = None if key is None else _add_prompt(pieces, members, key, outline, rich=rich)
            prompt = self._prompt(members, path, b"".join(pieces), tokens, complete=complete)
            return ParsedBody(prompt, envelope, body)
        except UnreadableError as error:
            return ParsedBody(error.reason, envelope, body)
        except RecursionError:
            return ParsedBody(Unreadable.TOO_DEEP, envelope, body)
        except msgspec.ValidationError:
            return ParsedBody(Unreadable.WRONG_SHAPE, envelope, body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return ParsedBody(Unreadable.NOT_JSON, envelope, body)

    def _prompt(
        self, envelope: Envelope, path: str, joined: bytes, tokens: int | None, *, complete: bool
    ) -> Prompt | Unreadable:
        if not joined:
            return Unreadable.NO_PROMPT
        return Prompt(
            model_of(path, body_model_of(envelope)),
            salt_of(envelope),
            joined,
            complete,
            adapter_of(envelope),
            "" if self._session is None else self._session.of(envelope),
            tokens,
        )


def _add_leads(
    pieces: text.Pieces, envelope: Envelope, path: str, opened: list[OpenContainer], *, rich: bool
) -> str | None:
    """Add what leads, as far as it is there; return the key of the prompt, None if that is still to come."""
    top = opened[0] if opened else None
    open_key = None if top is None else top.key
    if open_key in ("text", "prompt") and len(opened) > 1 and opened[1].is_object:
        open_key = None  # the Responses API's
    key = prompt_key(envelope, path, open_key)
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
    """Add the prompt, whole or as far as it is there; return the number of its token ids."""
    chat = key == "messages"
    if outline is None or not outline.opened or outline.opened[0].key != key:
        return add_value(pieces, getattr(envelope, key), chat=chat, rich=rich)
    if len(outline.opened) > 1:
        return add_cut(pieces, outline, chat=chat, rich=rich)
    partial = outline.opened[0].partial
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
