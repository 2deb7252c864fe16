"""The certain text of prompts that are present or read only in their leading part.

This text is a byte prefix of the whole prompt's text, for a body that was cut as well as for a prompt with
more values than are read: both end inside open containers.
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
    """Add a complete prompt, as far as it is read; return the number of its ids, None for other prompts.

    `chat`: it can only be a list of messages. `rich`: it may have more values than are read.
    """
    return _add_whole(pieces, raw, chat=chat, rich=rich)[0]


def _add_whole(
    pieces: Pieces, raw: msgspec.Raw | bytes, *, chat: bool, rich: bool
) -> tuple[int | None, bool]:
    """Add a prompt, or a list's complete elements; return the number of ids, and whether more may follow."""
    kind = first_kind(raw)
    if not chat and kind and kind[0] in _IDS_BEGIN:
        tokens = add_ids(pieces, raw)
        if tokens is not None:
            return tokens, kind != b"[" or memoryview(raw).tobytes().count(b"[") <= MAX_LISTS
        raw = _add_leading_ids(pieces, bytes(raw))
    # No API has a prompt object with that many values: `add_open` refuses it.
    containers = leading_values(raw) if rich and memoryview(raw)[0] in (LIST, OBJECT) else None
    if containers is not None:
        add_open(pieces, containers, chat=chat)
        return None, False
    if chat or kind == b"{":
        return None, add_messages(pieces, raw)
    return None, add_prompt(pieces, raw)


def add_rich(pieces: Pieces, raw: msgspec.Raw) -> bool:
    """Add JSON with more values than are read, and return True; add nothing to shorter JSON.

    Behind the values that are read, it counts as spelled, white space included: no more is decoded.
    """
    view = memoryview(raw)
    containers = leading_values(raw) if view[0] in (LIST, OBJECT) else None
    if containers is None:
        return False
    closed = containers[0].closed
    pieces += (canonical(closed)[:-1], view[containers[0].start + len(closed) - 1 :])
    return True


def _add_leading_ids(pieces: Pieces, raw: bytes) -> bytes:
    """Add the token ids ahead of a list's first string, and return the list without them.

    All of them: a cut ahead of the string does not show that one follows.
    """
    run = _LEADING_IDS.match(raw)
    if run is None:
        return raw
    pieces += (IDS, run.group(1).translate(None, _SPACE), PART)
    return b"[" + raw[run.end() :]


def add_cut(pieces: Pieces, outline: Outline, *, chat: bool, rich: bool) -> int | None:
    """Add the list that the end of the body goes through; return its number of tokens so far if it is ids."""
    containers = outline.containers[1:]
    if rich and chat:
        containers = outline.leading_values(containers[0].start) or containers
    elif rich:
        raw = outline.body[containers[0].start :]
        if raw.translate(None, _IDS_HOLD):
            rest = _add_leading_ids(pieces, raw)
            containers = leading_values(rest) or (containers if rest is raw else outline_of(rest).containers)
    return add_open(pieces, containers, chat=chat)


def add_open(pieces: Pieces, containers: list[OpenContainer], *, chat: bool) -> int | None:
    """Add a list whose last element is open: complete elements, then the certain part of the last one."""
    elements = containers[0]
    _refuse(elements.is_object)
    tokens, more = _add_whole(pieces, elements.closed, chat=chat, rich=False)
    is_first = elements.closed == b"[]"
    if len(containers) > 1 and containers[1].is_object:
        if more and (is_first or first_kind(elements.closed) == b"{"):
            _add_open_message(pieces, containers[1:])
        return None
    if len(containers) == 1 and elements.partial is None:
        return tokens
    _refuse(chat)
    if not more:
        return None
    if not is_first:
        pieces.append(PART)
    if elements.partial is not None:
        pieces.append(elements.partial)
        return None
    return _add_open_list(pieces, containers[1], tokens)


def _add_open_list(pieces: Pieces, last: OpenContainer, tokens: int | None) -> int | None:
    """Add the certain part of a list inside a list: ids, or strings mixed with ids."""
    more = add_ids(pieces, last.closed)
    if more is None and not add_elements(pieces, last.closed, nested=True):
        return None
    if last.partial is not None:
        if last.closed != b"[]":
            pieces.append(PART)
        pieces.append(last.partial)
        return None
    return None if tokens is None or more is None else tokens + more


def _add_open_message(pieces: Pieces, containers: list[OpenContainer]) -> None:
    message = read_message(containers[0].closed)
    if not memoryview(message.role):
        return
    pieces.append(message_start(message.role))
    if memoryview(message.content):
        add_content(pieces, message.content)
    elif containers[0].key != "content":
        return
    elif containers[0].partial is not None:
        pieces.append(containers[0].partial)
    elif len(containers) > 1:
        _refuse(containers[1].is_object)
        _add_open_parts(pieces, containers[1:])


def _add_open_parts(pieces: Pieces, containers: list[OpenContainer]) -> None:
    count = add_parts(pieces, containers[0].closed)
    if len(pieces) + count >= MAX_PIECES:
        return
    partial: Bytes | None = containers[0].partial
    if len(containers) > 1 and containers[1].is_object:
        part = read_part(containers[1].closed)
        if not is_text(part):
            return
        if memoryview(part.text):
            partial = inner(part.text)
        elif containers[1].key == "text":
            partial = containers[1].partial
    if partial is None:
        return
    if count:
        pieces.append(PART)
    pieces.append(partial)


def _refuse(wrong: bool) -> None:  # noqa: FBT001 - reads as a guard
    if wrong:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
