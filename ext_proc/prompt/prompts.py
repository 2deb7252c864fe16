"""A whole prompt: messages, strings, token ids, or a mixture, as each API spells it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from ext_proc.prompt.parts import add_block, add_content
from ext_proc.prompt.text import (
    ABSENT,
    IDS,
    LIST,
    MAX_MEDIA,
    MAX_PIECES,
    MESSAGE,
    OBJECT,
    PART,
    QUOTE,
    RAW,
    ROLE_END,
    add_ids,
    canonical,
    elements_of,
    inner,
    is_null,
    media_digest,
    members_of,
)
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ext_proc.prompt.text import Pieces, RawJson

_FIRST_ELEMENT: Final = re.compile(rb"\[[ \t\r\n]*+(.)", re.DOTALL)
_MESSAGE_STARTS: Final = {
    f'"{role}"'.encode(): MESSAGE + role.encode() + ROLE_END
    for role in ("system", "developer", "user", "assistant", "tool")
}
_LIST_COST: Final = 4
"""Pieces that a list in a list counts for, even an empty one."""
_INNER_COST: Final = 2
"""Pieces that a message's list of parts or of tool calls counts for, in addition to those that it adds."""
_DIGITS: Final = frozenset(b"0123456789")


class Message(msgspec.Struct, gc=False):
    """What counts of one message, undecoded."""

    role: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT
    tool_call_id: msgspec.Raw = ABSENT


class RoledMessage(Message):
    """The same, where a role is required."""

    role: msgspec.Raw


_MESSAGES: Final = msgspec.json.Decoder(list[Message])
_MESSAGE: Final = msgspec.json.Decoder(Message)


def read_message(raw: bytes) -> Message:
    """Decode one message."""
    return _MESSAGE.decode(raw)


def first_kind(raw: RawJson) -> bytes:
    """Return the first byte of a list's first element, `]` of an empty list; empty: it is no list."""
    first = _FIRST_ELEMENT.match(memoryview(raw))
    return b"" if first is None else first.group(1)


def add_messages(pieces: Pieces, raw: RawJson) -> bool:
    """Add a list of messages; return whether one more could be read.

    An item without a role (Responses has such) counts as a block.
    """
    return add_decoded(pieces, _MESSAGES.decode(raw), raw)


def add_decoded(pieces: Pieces, messages: Sequence[Message], raw: RawJson = b"[]") -> bool:
    """Do the same; `raw` is the list as it is spelled, where a role may be missing."""
    elements: list[msgspec.Raw] | None = None
    spent = 0
    absent, start_of = ABSENT, _MESSAGE_STARTS.get
    for number, message in enumerate(messages):
        if len(pieces) + spent >= MAX_PIECES:
            return False
        spent += 1
        role, content = message.role, message.content
        if role is absent:
            elements = elements_of(raw) if elements is None else elements
            pieces.append(MESSAGE)
            add_block(pieces, elements[number])
            continue
        start = start_of(bytes(role)) or message_start(role)
        if content is absent:
            pieces.append(start)
        elif (view := memoryview(content))[0] == QUOTE:
            pieces += (start, view[1:-1])
        else:
            spent += _INNER_COST
            pieces.append(start)
            add_content(pieces, view)
        if message.tool_calls is not absent and not is_null(message.tool_calls):
            spent += _INNER_COST
            pieces += (RAW, canonical(message.tool_calls))
        if message.tool_call_id is not absent and not is_null(message.tool_call_id):
            pieces += (RAW, memoryview(message.tool_call_id))
    return len(pieces) + spent < MAX_PIECES


def message_start(role: RawJson) -> bytes:
    """Return how a message of this role begins."""
    return MESSAGE + bytes(inner(role)) + ROLE_END


def add_prompt(pieces: Pieces, raw: RawJson) -> bool:
    """Add a string, strings, or strings mixed with token ids, lists of these and objects.

    A list of prompts is joined, so that its length counts as work; its first prompt is what other requests
    can share. One prompt in a list equals the prompt alone. Returns whether one more could be read.
    """
    kind = memoryview(raw)[0]
    if kind == LIST:
        return add_elements(pieces, raw)
    if kind == QUOTE:
        pieces.append(inner(raw))
    elif kind == OBJECT:
        _add_object(pieces, raw)
    else:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    return True


def add_elements(pieces: Pieces, raw: RawJson, *, nested: bool = False) -> bool:
    """Add the elements of a list of prompts, or of one prompt; return whether one more could be read."""
    if nested and add_ids(pieces, raw) is not None:
        return True
    in_ids = False
    spent = 0
    for number, element in enumerate(elements_of(raw)):
        if len(pieces) + spent >= MAX_PIECES:
            return False
        kind = memoryview(element)[0]
        spent += _LIST_COST if kind == LIST else 1
        if kind in _DIGITS:
            spelled = bytes(element)
            if not spelled.isdigit():
                raise UnreadableError(Unreadable.WRONG_SHAPE)
            pieces += (b"" if in_ids else IDS, spelled, b",")
            in_ids = True
            continue
        in_ids = False
        if number:
            pieces.append(PART)
        if kind == QUOTE:
            pieces.append(inner(element))
        elif kind == LIST and not nested:
            add_elements(pieces, element, nested=True)
        elif kind == OBJECT:
            _add_object(pieces, element)
        else:
            raise UnreadableError(Unreadable.WRONG_SHAPE)
    return len(pieces) + spent < MAX_PIECES


def _add_object(pieces: Pieces, raw: RawJson) -> None:
    """Add llama.cpp's prompt with images: `prompt_string` and `multimodal_data`."""
    members = members_of(raw)
    if "prompt_string" not in members:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    media = members.get("multimodal_data", ABSENT)
    if not is_null(media):
        add_media(pieces, media)
    pieces.append(inner(members["prompt_string"]))


def add_media(pieces: Pieces, raw: RawJson) -> None:
    """Add images next to a text that marks their places: one, or a list of them."""
    for image in elements_of(raw) if memoryview(raw)[0] == LIST else (raw,):
        if len(pieces) >= min(MAX_MEDIA, MAX_PIECES):
            return
        pieces += (RAW, media_digest(image))
