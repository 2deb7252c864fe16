"""Prompts of which only the leading part is there, or is read: what is sure of them.

Their text is a byte prefix of the whole prompt's text. That holds for a body that was cut on its way as for
a prompt with more values than are read: both end inside open containers.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ext_proc.prompt.outline import leading_values, outline_of
from ext_proc.prompt.parts import add_content, add_parts, is_text, read_part
from ext_proc.prompt.prompts import (
    add_elements,
    add_messages,
    add_prompt,
    first_kind,
    message_start,
    read_message,
)
from ext_proc.prompt.text import (
    IDS,
    LIST,
    MAX_LISTS,
    MAX_PIECES,
    OBJECT,
    PART,
    add_ids,
    canonical,
    inner,
)
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    import msgspec

    from ext_proc.prompt.outline import OpenContainer, Outline
    from ext_proc.prompt.text import Bytes, Pieces

_IDS_BEGIN: Final = frozenset(b"[0123456789")
_SPACE: Final = b" \t\r\n"
_LEADING_IDS: Final = re.compile(rb"\[((?:[ \t\r\n]*+[0-9]++[ \t\r\n]*+,)++)")
_IDS_HOLD: Final = b"[]0123456789, \t\r\n"


def add_value(pieces: Pieces, raw: msgspec.Raw | bytes, *, chat: bool, rich: bool) -> int | None:
    """Add a prompt that is all there, as far as it is read; return its number of tokens if it is ids.

    `chat`: it can only be a list of messages. `rich`: it may have more values than are read.
    """
    return _add_whole(pieces, raw, chat=chat, rich=rich)[0]


def _add_whole(
    pieces: Pieces, raw: msgspec.Raw | bytes, *, chat: bool, rich: bool
) -> tuple[int | None, bool]:
    """Add a prompt, or a list's complete elements; tell the number of ids, and whether more may follow."""
    kind = first_kind(raw)
    if not chat and kind and kind[0] in _IDS_BEGIN:
        tokens = add_ids(pieces, raw)
        if tokens is not None:
            return tokens, kind != b"[" or memoryview(raw).tobytes().count(b"[") <= MAX_LISTS
        raw = _add_leading_ids(pieces, bytes(raw))
    # An object that is so rich is nobody's prompt: `add_open` refuses it.
    opened = leading_values(raw) if rich and memoryview(raw)[0] in (LIST, OBJECT) else None
    if opened is not None:
        add_open(pieces, opened, chat=chat)
        return None, False
    if chat or kind == b"{":
        return None, add_messages(pieces, raw)
    return None, add_prompt(pieces, raw)


def add_rich(pieces: Pieces, raw: msgspec.Raw) -> bool:
    """Add JSON that has more values than are read, and return whether it has; else add nothing.

    Behind the values that are read it counts as it is spelled, white space included: no more is decoded.
    """
    view = memoryview(raw)
    opened = leading_values(raw) if view[0] in (LIST, OBJECT) else None
    if opened is None:
        return False
    closed = opened[0].closed
    pieces += (canonical(closed)[:-1], view[opened[0].start + len(closed) - 1 :])
    return True


def _add_leading_ids(pieces: Pieces, raw: bytes) -> bytes:
    """Add the token ids ahead of a list's first string, and return the list without them.

    All of them, however many there are: a cut ahead of the string cannot tell that one follows.
    """
    run = _LEADING_IDS.match(raw)
    if run is None:
        return raw
    pieces += (IDS, run.group(1).translate(None, _SPACE), PART)
    return b"[" + raw[run.end() :]


def add_cut(pieces: Pieces, outline: Outline, *, chat: bool, rich: bool) -> int | None:
    """Add the list that the end of the body goes through; return its number of tokens so far if it is ids."""
    opened = outline.opened[1:]
    if rich and chat:
        opened = outline.leading_values(opened[0].start) or opened
    elif rich:
        raw = outline.body[opened[0].start :]
        if raw.translate(None, _IDS_HOLD):
            rest = _add_leading_ids(pieces, raw)
            opened = leading_values(rest) or (opened if rest is raw else outline_of(rest).opened)
    return add_open(pieces, opened, chat=chat)


def add_open(pieces: Pieces, opened: list[OpenContainer], *, chat: bool) -> int | None:
    """Add a list of which the last element is open: complete elements, then what is sure of that one."""
    elements = opened[0]
    _refuse(elements.is_object)
    tokens, more = _add_whole(pieces, elements.closed, chat=chat, rich=False)
    is_first = elements.closed == b"[]"
    if len(opened) > 1 and opened[1].is_object:
        if more and (is_first or first_kind(elements.closed) == b"{"):
            _add_open_message(pieces, opened[1:])
        return None
    if len(opened) == 1 and elements.partial is None:
        return tokens
    _refuse(chat)
    if not more:
        return None
    if not is_first:
        pieces.append(PART)
    if elements.partial is not None:
        pieces.append(elements.partial)
        return None
    return _add_open_list(pieces, opened[1], tokens)


def _add_open_list(pieces: Pieces, last: OpenContainer, tokens: int | None) -> int | None:
    """Add what is sure of a list inside a list: ids, or strings mixed with ids."""
    more = add_ids(pieces, last.closed)
    if more is None and not add_elements(pieces, last.closed, nested=True):
        return None
    if last.partial is not None:
        if last.closed != b"[]":
            pieces.append(PART)
        pieces.append(last.partial)
        return None
    return None if tokens is None or more is None else tokens + more


def _add_open_message(pieces: Pieces, opened: list[OpenContainer]) -> None:
    message = read_message(opened[0].closed)
    if not memoryview(message.role):
        return
    pieces.append(message_start(message.role))
    if memoryview(message.content):
        add_content(pieces, message.content)
    elif opened[0].key != "content":
        return
    elif opened[0].partial is not None:
        pieces.append(opened[0].partial)
    elif len(opened) > 1:
        _refuse(opened[1].is_object)
        _add_open_parts(pieces, opened[1:])


def _add_open_parts(pieces: Pieces, opened: list[OpenContainer]) -> None:
    count = add_parts(pieces, opened[0].closed)
    if len(pieces) + count >= MAX_PIECES:
        return
    partial: Bytes | None = opened[0].partial
    if len(opened) > 1 and opened[1].is_object:
        part = read_part(opened[1].closed)
        if not is_text(part):
            return
        if memoryview(part.text):
            partial = inner(part.text)
        elif opened[1].key == "text":
            partial = opened[1].partial
    if partial is None:
        return
    if count:
        pieces.append(PART)
    pieces.append(partial)


def _refuse(wrong: bool) -> None:  # noqa: FBT001 - reads as a guard
    if wrong:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
