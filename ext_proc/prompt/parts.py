"""What a message holds: text, parts, and blocks of other kinds (images, tool calls and their results).

Where a cache breakpoint stands (`cache_control`) does not count: clients move it on with every turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from ext_proc.prompt.text import (
    ABSENT,
    LIST,
    MAX_PIECES,
    NULL,
    OBJECT,
    PART,
    QUOTE,
    RAW,
    ROLE_END,
    canonical,
    elements_of,
    inner,
    is_null,
    media_digest,
    members_of,
)
from ext_proc.prompt.unreadable import Unreadable, UnreadableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ext_proc.prompt.text import Bytes, Pieces, RawJson

_TEXT_TYPES: Final = frozenset((b'"text"', b'"input_text"', b'"output_text"'))
_MEDIA: Final = frozenset(
    ("image_url", "video_url", "audio_url", "input_audio", "image", "audio", "video", "source", "file")
) | frozenset(("file_data", "file_url", "image_pil", "image_embeds", "audio_embeds"))
_RESULTS: Final = {b'"tool_result"': "content", b'"function_call_output"': "output"}
"""Type of a block to the member that holds text or parts, as a message does."""
_UNCOUNTED: Final = frozenset(("cache_control", "type"))


class Part(msgspec.Struct, gc=False):
    """What counts of one content part, undecoded."""

    type: msgspec.Raw = ABSENT
    text: msgspec.Raw = ABSENT


_PART: Final = msgspec.json.Decoder(Part)


def add_content(pieces: Pieces, raw: RawJson, *, nested: bool = False) -> None:
    """Add a message's content: a string, a list of parts, or null."""
    view = memoryview(raw)
    kind = view[0]
    if kind == QUOTE:
        pieces.append(view[1:-1])
    elif kind == LIST:
        add_parts(pieces, raw, nested=nested)
    elif kind != NULL:
        raise UnreadableError(Unreadable.WRONG_SHAPE)


def add_parts(pieces: Pieces, raw: RawJson, *, nested: bool = False) -> int:
    """Add content parts and return how many there are. One text part alone equals the string."""
    elements = elements_of(raw)
    for number, element in enumerate(elements):
        if len(pieces) + number >= MAX_PIECES:
            break
        view = memoryview(element)
        if view[0] == QUOTE:
            text: Bytes = view[1:-1]
        elif view[0] == OBJECT:
            part = _PART.decode(element)
            if not is_text(part):
                add_block(pieces, element, nested=nested)
                continue
            text = inner(part.text)
        else:
            raise UnreadableError(Unreadable.WRONG_SHAPE)
        if number:
            pieces.append(PART)
        pieces.append(text)
    return len(elements)


def add_block(pieces: Pieces, raw: RawJson, *, nested: bool = False) -> None:
    """Add an object of a kind of its own: its type, then its members by name.

    Images, sounds and files stand as a digest: of their `uuid` alone, if they have one, because the engine
    finds them by it, whatever their URL. The result of a tool holds text or parts, as a message does.
    """
    members = members_of(raw)
    kind = bytes(members.get("type", ABSENT))
    if "uuid" in members and not is_null(members["uuid"]) and _is_media(kind, members):
        pieces += (RAW, kind, b"uuid", ROLE_END, media_digest(members["uuid"]))
        return
    content = None if nested else _RESULTS.get(kind)
    pieces += (RAW, kind)
    for name in sorted(members.keys() - _UNCOUNTED):
        value = members[name]
        if name == content:
            continue
        if len(pieces) >= MAX_PIECES:
            return
        pieces += (name.encode(), ROLE_END, media_digest(value) if name in _MEDIA else _spelled(value))
    if content in members:
        pieces += (content.encode(), ROLE_END)
        add_content(pieces, members[content], nested=True)


def _is_media(kind: bytes, members: Mapping[str, msgspec.Raw]) -> bool:
    return kind[1:-1].decode() in _MEDIA or not _MEDIA.isdisjoint(members)


def _spelled(value: msgspec.Raw) -> Bytes:
    kind = memoryview(value)[0]
    return canonical(value) if kind in (OBJECT, LIST) else memoryview(value)


def is_text(part: Part) -> bool:
    """Whether a part is text by its type."""
    return bytes(part.type) in _TEXT_TYPES


def read_part(raw: bytes) -> Part:
    """Decode one content part."""
    return _PART.decode(raw)
