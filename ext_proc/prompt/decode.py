"""Body bytes to model, salt and canonical prompt text, decoding only what routing needs.

What stands ahead of the messages in the body (`tools`, `system`, `instructions`) stands ahead of them in the
text, in the body's order. What follows the messages does not count: the leading part of a body could not
know it, and its blocks would then differ from those of the whole. Otherwise the order of keys and the white
space around values change nothing.

The leading part of a body yields a byte prefix of the whole body's text. Its model and salt may be missing,
since some clients send the messages first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from ext_proc.prompt import text
from ext_proc.prompt.outline import Open, open_containers
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

__all__ = ["Prompt", "Unreadable", "read_prompt"]

_LEADS: Final = ("tools", "system", "instructions")
_PROMPTS: Final = ("messages", "prompt", "input")


@dataclass(frozen=True, slots=True)
class Prompt:
    """What routing reads of a request."""

    model: str | None
    """None: absent, or not in the leading part of a cut body."""
    salt: str
    """`cache_salt`, "" when absent."""
    text: bytes
    """Canonical prompt bytes in order: what is hashed."""
    complete: bool
    """False: only the leading part of the body was there."""


class _Seen:
    """A value whose every occurrence is to be counted: JSON lets a key come twice."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


class _Envelope(msgspec.Struct, gc=False):
    model: _Seen | msgspec.UnsetType = msgspec.UNSET
    cache_salt: _Seen | msgspec.UnsetType = msgspec.UNSET
    messages: msgspec.Raw = text.ABSENT
    prompt: msgspec.Raw = text.ABSENT
    input: msgspec.Raw = text.ABSENT
    tools: msgspec.Raw = text.ABSENT
    system: msgspec.Raw = text.ABSENT
    instructions: msgspec.Raw = text.ABSENT


_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_prompt(body: bytes, *, complete: bool) -> Prompt | Unreadable:
    """Read a request body, or its leading part if not `complete`. Never raises."""
    try:
        opened = [] if complete else open_containers(body)
        if opened:
            return _read_cut(opened)
        return _read_whole(body, complete=complete)
    except UnreadableError as error:
        return error.reason
    except RecursionError:
        return Unreadable.TOO_DEEP
    except msgspec.ValidationError:
        return Unreadable.WRONG_SHAPE
    except msgspec.DecodeError:
        return Unreadable.NOT_JSON


def _read_whole(body: bytes, *, complete: bool) -> Prompt:
    envelope, model, salt = _read_envelope(body)
    key = _only_prompt(envelope)
    if key is None:
        raise UnreadableError(Unreadable.NO_PROMPT)
    pieces: text.Pieces = []
    _add_leads(pieces, body, envelope, until=key)
    raw = getattr(envelope, key)
    if key == "messages":
        text.add_messages(pieces, raw)
    else:
        text.add_prompt(pieces, raw)
    return _prompt(model, salt, pieces, complete=complete)


def _read_envelope(body: bytes) -> tuple[_Envelope, str | None, str]:
    """Return the top-level members, the model and the salt."""
    seen: list[_Seen] = []

    def count(_: type, value: object) -> _Seen:
        seen.append(_Seen(value))
        return seen[-1]

    envelope = msgspec.json.Decoder(_Envelope, dec_hook=count).decode(body)
    expected = (envelope.model is not msgspec.UNSET) + (envelope.cache_salt is not msgspec.UNSET)
    if len(seen) > expected:
        raise UnreadableError(Unreadable.AMBIGUOUS)
    return envelope, _string(envelope.model), _string(envelope.cache_salt) or ""


def _string(seen: _Seen | msgspec.UnsetType) -> str | None:
    if isinstance(seen, msgspec.UnsetType) or seen.value is None:
        return None
    if not isinstance(seen.value, str):
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    return seen.value


def _only_prompt(envelope: _Envelope) -> str | None:
    present = [key for key in _PROMPTS if not text.is_null(getattr(envelope, key))]
    if len(present) > 1:
        raise UnreadableError(Unreadable.AMBIGUOUS)
    return present[0] if present else None


def _add_leads(pieces: text.Pieces, body: bytes, envelope: _Envelope, *, until: str | None) -> None:
    """Add what stands ahead of the prompt; a second look tells the order, only if there is any."""
    if all(getattr(envelope, key) is text.ABSENT for key in _LEADS):
        return
    for key, raw in _MEMBERS.decode(body).items():
        if key == until:
            return
        if key in _LEADS and not text.is_null(raw):
            pieces += (text.LEAD, key.encode(), text.ROLE_END)
            if key == "tools":
                pieces.append(memoryview(raw))
            else:
                text.add_content(pieces, raw)


def _read_cut(opened: list[Open]) -> Prompt:
    top = opened[0]
    envelope, model, salt = _read_envelope(top.closed)
    key = _only_prompt(envelope)
    pieces: text.Pieces = []
    _add_leads(pieces, top.closed, envelope, until=key)
    if key is not None:
        if top.key in _PROMPTS:
            raise UnreadableError(Unreadable.AMBIGUOUS)
        raw = getattr(envelope, key)
        if key == "messages":
            text.add_messages(pieces, raw)
        else:
            text.add_prompt(pieces, raw)
    elif top.key in _PROMPTS:
        _add_open_prompt(pieces, opened)
    elif top.key in ("system", "instructions") and top.partial is not None:
        pieces += (text.LEAD, top.key.encode(), text.ROLE_END, top.partial)
    return _prompt(model, salt, pieces, complete=False)


def _add_open_prompt(pieces: text.Pieces, opened: list[Open]) -> None:
    """Add the prompt that the cut goes through: complete elements, then what is sure of the last one."""
    top = opened[0]
    chat = top.key == "messages"
    if len(opened) == 1:
        if top.partial is not None:
            _refuse(chat)
            pieces.append(top.partial)
        return
    elements = opened[1]
    _refuse(elements.is_object)
    is_first = elements.closed == b"[]"
    if chat:
        text.add_messages(pieces, elements.closed)
    else:
        text.add_prompt(pieces, elements.closed)
    if len(opened) == 2 and elements.partial is None:
        return
    if len(opened) > 2 and opened[2].is_object:
        _add_open_message(pieces, opened[2:])
        return
    _refuse(chat)
    if not is_first:
        pieces.append(text.PART)
    if elements.partial is not None:
        pieces.append(elements.partial)
    else:
        text.add_ids(pieces, opened[2].closed)


def _add_open_message(pieces: text.Pieces, opened: list[Open]) -> None:
    message = text.read_message(opened[0].closed)
    if not memoryview(message.role):
        return
    pieces += (text.MESSAGE, text.inner(message.role), text.ROLE_END)
    if memoryview(message.content):
        text.add_content(pieces, message.content)
    elif opened[0].key != "content":
        return
    elif opened[0].partial is not None:
        pieces.append(opened[0].partial)
    elif len(opened) > 1:
        _refuse(opened[1].is_object)
        _add_open_parts(pieces, opened[1:])


def _add_open_parts(pieces: text.Pieces, opened: list[Open]) -> None:
    count = text.add_parts(pieces, opened[0].closed)
    partial: text.Bytes | None = opened[0].partial
    if len(opened) > 1 and opened[1].is_object:
        part = text.read_part(opened[1].closed)
        if not text.is_text(part):
            return
        if memoryview(part.text):
            partial = text.inner(part.text)
        elif opened[1].key == "text":
            partial = opened[1].partial
    if partial is None:
        return
    if count:
        pieces.append(text.PART)
    pieces.append(partial)


def _refuse(wrong: bool) -> None:  # noqa: FBT001 - reads as a guard
    if wrong:
        raise UnreadableError(Unreadable.WRONG_SHAPE)


def _prompt(model: str | None, salt: str, pieces: text.Pieces, *, complete: bool) -> Prompt:
    joined = b"".join(pieces[: text.MAX_PIECES])
    if not joined:
        raise UnreadableError(Unreadable.NO_PROMPT)
    return Prompt(model, salt, joined, complete)
