r"""Canonical prompt bytes: a prompt's raw JSON bytes, delimited so that longer prompts extend shorter ones.

Each message begins with a marker and its role and has no closing mark, so the text of a turn is a byte
prefix of the text of the next. Strings count as they are spelled between their quotes: nothing is
unescaped or written anew, so a client that spells `é` and one that spells `\u00e9` do not share blocks.
JSON strings hold no raw control characters, which keeps the markers unmistakable.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

Bytes: TypeAlias = "bytes | memoryview"
Pieces: TypeAlias = "list[Bytes]"
"""What is joined into the text, in order."""

LEAD: Final = b"\x1a"
"""Before what stands ahead of the messages: tools, a system prompt."""
IDS: Final = b"\x1b"
"""Before a run of token ids; each id is followed by a comma."""
RAW: Final = b"\x1c"
"""Before JSON that counts as it stands: images, tool calls."""
PART: Final = b"\x1d"
"""Before every text part and every prompt of a list but the first."""
MESSAGE: Final = b"\x1e"
ROLE_END: Final = b"\x1f"

MAX_PIECES: Final = 32_768
"""Markers, roles and contents that are read, about 10 ms of work; the text ends there."""

_QUOTE, _LIST, _OBJECT, _NULL = b'"[{n'
ABSENT: Final = msgspec.Raw(b"")
_TEXT_TYPES: Final = frozenset((b'"text"', b'"input_text"', b'"output_text"'))
_FIRST_ELEMENT: Final = re.compile(rb"\[[ \t\r\n]*+(.)", re.DOTALL)
_SPACE: Final = b" \t\r\n"
_IDS: Final = b"0123456789,"


class Message(msgspec.Struct, gc=False):
    """What counts of one message, undecoded."""

    role: msgspec.Raw = ABSENT
    content: msgspec.Raw = ABSENT
    tool_calls: msgspec.Raw = ABSENT
    tool_call_id: msgspec.Raw = ABSENT


class Part(msgspec.Struct, gc=False):
    """What counts of one content part, undecoded."""

    type: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT


_MESSAGES: Final = msgspec.json.Decoder(list[Message])
_MESSAGE: Final = msgspec.json.Decoder(Message)
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_PART: Final = msgspec.json.Decoder(Part)


def inner(raw: msgspec.Raw | Bytes) -> Bytes:
    """Return what stands between the quotes of a JSON string, as spelled."""
    view = memoryview(raw)
    if not view or view[0] != _QUOTE:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    return view[1:-1]


def is_null(raw: msgspec.Raw | Bytes) -> bool:
    """Tell whether a value is absent or null, which engines read alike."""
    view = memoryview(raw)
    return not view or view[0] == _NULL


def add_prompt(pieces: Pieces, raw: msgspec.Raw | Bytes) -> None:
    """Add `prompt` or `input`: a string, strings, token ids, lists of token ids, or messages.

    A list of prompts is joined, so that its length counts as work; its first prompt is what other requests
    can share. One prompt in a list equals the prompt alone.
    """
    view = memoryview(raw)
    if view[0] == _QUOTE:
        pieces.append(view[1:-1])
        return
    first = _FIRST_ELEMENT.match(view)
    if first is None:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    kind = first.group(1)
    if kind == b"{":
        add_messages(pieces, raw)
    elif kind in b'["':
        for number, prompt in enumerate(_ELEMENTS.decode(raw)):
            if len(pieces) >= MAX_PIECES:
                return
            if number:
                pieces.append(PART)
            if kind == b"[":
                add_ids(pieces, prompt)
            else:
                pieces.append(inner(prompt))
    elif kind != b"]":
        add_ids(pieces, raw)


def add_ids(pieces: Pieces, raw: msgspec.Raw | Bytes) -> None:
    """Add a list of token ids as decimals, each with its comma, whatever the white space."""
    dense = bytes(raw).translate(None, _SPACE)
    if dense.translate(None, _IDS) != b"[]":
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    if len(dense) > len(b"[]"):
        pieces += (IDS, dense[1:-1], b",")


def add_messages(pieces: Pieces, raw: msgspec.Raw | Bytes) -> None:
    """Add a list of messages. An item without a role (Responses has such) counts as it stands."""
    messages = _MESSAGES.decode(raw)
    elements: list[msgspec.Raw] | None = None
    for number, message in enumerate(messages):
        if len(pieces) >= MAX_PIECES:
            return
        if message.role is ABSENT:
            elements = _ELEMENTS.decode(raw) if elements is None else elements
            pieces += (MESSAGE, RAW, memoryview(elements[number]))
            continue
        pieces += (MESSAGE, inner(message.role), ROLE_END)
        if message.content is not ABSENT:
            add_content(pieces, message.content)
        if message.tool_calls is not ABSENT and not is_null(message.tool_calls):
            pieces += (RAW, memoryview(message.tool_calls))
        if message.tool_call_id is not ABSENT and not is_null(message.tool_call_id):
            pieces += (RAW, memoryview(message.tool_call_id))


def add_content(pieces: Pieces, raw: msgspec.Raw | Bytes) -> None:
    """Add a message's content: a string, a list of parts, or null."""
    view = memoryview(raw)
    kind = view[0]
    if kind == _QUOTE:
        pieces.append(view[1:-1])
    elif kind == _LIST:
        add_parts(pieces, raw)
    elif kind != _NULL:
        raise UnreadableError(Unreadable.WRONG_SHAPE)


def add_parts(pieces: Pieces, raw: msgspec.Raw | Bytes) -> int:
    """Add content parts and return how many there are. One text part alone equals the string."""
    elements = _ELEMENTS.decode(raw)
    for number, element in enumerate(elements):
        if len(pieces) >= MAX_PIECES:
            break
        view = memoryview(element)
        if view[0] == _QUOTE:
            text: Bytes | None = view[1:-1]
        elif view[0] == _OBJECT:
            part = _PART.decode(element)
            text = inner(part.text) if is_text(part) else None
        else:
            raise UnreadableError(Unreadable.WRONG_SHAPE)
        if text is None:
            pieces += (RAW, view)
            continue
        if number:
            pieces.append(PART)
        pieces.append(text)
    return len(elements)


def is_text(part: Part) -> bool:
    """Tell whether a part is text, as far as its type is known."""
    return bytes(part.type) in _TEXT_TYPES


def read_message(raw: bytes) -> Message:
    """Decode one message."""
    return _MESSAGE.decode(raw)


def read_part(raw: bytes) -> Part:
    """Decode one content part."""
    return _PART.decode(raw)
