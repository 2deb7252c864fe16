r"""Canonical prompt bytes: a prompt's raw JSON bytes, delimited so that longer prompts extend shorter ones.

Each message begins with a marker and its role and has no closing mark, so the text of a turn is a byte
prefix of the text of the next. Strings count as they are spelled between their quotes, without
unescaping, so a client that spells `é` and one that spells `\u00e9` do not share blocks.
JSON strings hold no raw control characters, which keeps the markers unmistakable.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

import msgspec
from xxhash import xxh3_128_hexdigest

from ext_proc.prompt.unreadable import Unreadable, UnreadableError

Bytes: TypeAlias = "bytes | memoryview"
RawJson: TypeAlias = "msgspec.Raw | Bytes"
Pieces: TypeAlias = "list[Bytes]"
"""What is joined into the text, in order."""

LEAD: Final = b"\x1a"
"""Before what stands ahead of the messages: tools, a system prompt."""
IDS: Final = b"\x1b"
"""Before a run of token ids; each id is followed by a comma."""
RAW: Final = b"\x1c"
"""Before what is neither text nor ids: images, tool calls, blocks of a kind of their own."""
PART: Final = b"\x1d"
"""Before every text part and every prompt of a list but the first."""
MESSAGE: Final = b"\x1e"
ROLE_END: Final = b"\x1f"
"""Behind a role, and behind the name of a member."""

MAX_PIECES: Final = 3072
"""Markers, roles and contents that are read, about 2 ms of work; the text ends there."""
MAX_LISTS: Final = 4096
"""Prompts of token ids in one request that are read."""
MEDIA_BYTES: Final = 2048
"""What an image, a sound or a file adds to the text, whatever its size in the body: about 500 tokens."""
MAX_MEDIA: Final = 256
"""Pieces behind which no image is added: by default half of what is hashed is full of images then."""
_SORTED_MARKS: Final = 256
"""JSON with more commas and brackets keeps its order of keys."""
_SORTED_BYTES: Final = 32_768

QUOTE, LIST, OBJECT, NULL = b'"[{n'
ABSENT: Final = msgspec.Raw(b"")
_SPACE: Final = b" \t\r\n"
_IDS: Final = b"0123456789,"
_DIGEST_CHARS: Final = 32
_IDS_AHEAD: Final = re.compile(rb"\[[ \t\r\n]*+(?:\[[ \t\r\n]*+)?+[0-9\]]")

_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_SORTING: Final = msgspec.json.Encoder(order="deterministic")


def elements_of(raw: RawJson) -> list[msgspec.Raw]:
    """Return the elements of a JSON list, undecoded."""
    return _ELEMENTS.decode(raw)


def members_of(raw: RawJson) -> dict[str, msgspec.Raw]:
    """Return the members of a JSON object, undecoded."""
    return _MEMBERS.decode(raw)


def inner(raw: RawJson) -> Bytes:
    """Return what stands between the quotes of a JSON string, as spelled."""
    view = memoryview(raw)
    if not view or view[0] != QUOTE:
        raise UnreadableError(Unreadable.WRONG_SHAPE)
    return view[1:-1]


def is_null(raw: RawJson) -> bool:
    """Tell whether a value is absent or null, which engines read alike."""
    view = memoryview(raw)
    return not view or view[0] == NULL


def canonical(raw: RawJson) -> bytes:
    """Return JSON without white space, and with sorted keys unless it is long.

    Long JSON (a hundred tools) keeps the order of its keys, in which engines' templates write it, too: a
    client that shuffles them has another prefix in the engine as well.
    """
    spelled = bytes(raw)
    if len(spelled) <= _SORTED_BYTES:
        marks = spelled.count(b",") + spelled.count(b"{") + spelled.count(b"[")
        if marks <= _SORTED_MARKS:
            return _SORTING.encode(msgspec.json.decode(spelled))
    return msgspec.json.format(spelled, indent=-1)


def media_digest(raw: RawJson) -> bytes:
    """Return what stands for an image, a sound or a file: a digest of its URL or data, `MEDIA_BYTES` long.

    Of an object every member counts, whatever their order.
    """
    view = memoryview(raw)
    if view[0] == OBJECT:
        members = members_of(raw)
        view = memoryview(b",".join(b"%b:%b" % (key.encode(), members[key]) for key in sorted(members)))
    return xxh3_128_hexdigest(view).encode() * (MEDIA_BYTES // _DIGEST_CHARS)


def add_ids(pieces: Pieces, raw: RawJson) -> int | None:
    """Add token ids as decimals, each with its comma; return how many there are, None if it is no such list.

    A list of lists is several prompts; the first `MAX_LISTS` count. White space does not.
    """
    view = memoryview(raw)
    if _IDS_AHEAD.match(view) is None:
        return None
    dense = bytes(view).translate(None, _SPACE)
    if not dense.startswith(b"[["):
        if dense.translate(None, _IDS) != b"[]":
            return None
        if len(dense) == len(b"[]"):
            return 0
        pieces += (IDS, dense[1:-1], b",")
        return dense.count(b",") + 1
    if dense.translate(None, b"[]" + _IDS) or not dense.endswith(b"]]"):
        return None
    prompts = dense[2:-2].split(b"],[", MAX_LISTS)[:MAX_LISTS]
    joined = IDS + (b"," + PART + IDS).join(prompts) + b","
    if b"[" in joined or b"]" in joined:
        return None
    # Where a list is empty, nothing stands between its marker and the comma.
    joined = joined.replace(IDS + b",", b"")
    pieces.append(joined)
    return joined.count(b",")
