"""Names of what an engine stores: in paths, in request bodies, and at the head of the answer that gives one.

Names are the engines' own (`resp_…`, `conv_…`, `file-…`); nothing is made up, so other routers see the same.
"""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING, Final

import msgspec

from ext_proc.prompt.outline import outline_of
from ext_proc.prompt.text import ABSENT, OBJECT, QUOTE, is_null
from ext_proc.prompt.unreadable import UnreadableError
from fleet.names import STORED_COLLECTIONS

if TYPE_CHECKING:
    from ext_proc.prompt.envelope import Members

MAX_NAME_BYTES: Final = 256
MOST_NAMES: Final = 8
"""Of files in one request that are looked up."""
HEAD_BYTES: Final = 16_384
"""Leading bytes of an answer in which its name must stand."""
_PATH: Final = re.compile(rf"/(?:{'|'.join(STORED_COLLECTIONS)})/([^/?#]*[0-9][^/?#]*)")
# Quotes in a JSON string are escaped, so this is a member and no text.
_FILES: Final = re.compile(rb'"(?:input_)?file_id"[ \t\r\n]*+:[ \t\r\n]*+"([^"\\]{1,256})"')
_EVENT_DATA: Final = re.compile(rb"(?:\A|\n)data:[ ]?([^\r\n]*)")


class _Named(msgspec.Struct, gc=False):
    """What of an object, or of the first event of a stream, may be a name."""

    id: msgspec.Raw = ABSENT
    response: msgspec.Raw = ABSENT


_values_of: Final = attrgetter("previous_response_id", "conversation")
_NO_VALUES: Final = (ABSENT, ABSENT)
_NAMED: Final = msgspec.json.Decoder(_Named)


def name_in_path(path: str) -> str:
    """Return the name in `/v1/responses/NAME/...` and its like; empty: there is none."""
    match = _PATH.search(path.partition("?")[0])
    return match.group(1)[:MAX_NAME_BYTES] if match is not None else ""


def names_in_body(envelope: Members) -> list[str]:
    """Return the response and the conversation that a request continues."""
    names: list[str] = []
    values = _values_of(envelope)
    if values == _NO_VALUES:
        return names
    for raw in values:
        if raw is ABSENT or is_null(raw):
            continue
        if memoryview(raw)[0] == OBJECT:
            raw = _decoded(bytes(raw)).id
        if name := _text(raw):
            names.append(name)
    return names


def files_in_body(body: bytes) -> list[str]:
    """Return the files that a request's body names, the first few."""
    # From behind, because that skips most bytes: a tenth of the pattern's time.
    if body.rfind(b'file_id"') < 0:
        return []
    names = dict.fromkeys(match.group(1) for match in _FILES.finditer(body))
    return [name.decode("utf-8", "replace") for name in list(names)[:MOST_NAMES]]


def name_in_answer(head: bytes) -> str | None:
    """Return the name that an answer's leading bytes give: JSON, or the first event of a stream.

    None: it may follow. Empty: there is none.
    """
    text = head.lstrip()
    if not text.startswith(b"{"):
        event = _EVENT_DATA.search(text)
        if event is None:
            return None
        text = event.group(1)
    try:
        containers = outline_of(text).containers
        named = _decoded(containers[0].closed if containers else text)
        if containers and containers[0].key == "response" and len(containers) > 1:
            # The response of an event, cut off: its name stands first.
            return _text(_decoded(containers[1].closed).id) or None
    except (UnreadableError, msgspec.DecodeError, RecursionError):
        return ""
    if (response := memoryview(named.response)) and response[0] == OBJECT:
        named = _decoded(bytes(named.response))
    return _text(named.id) or (None if containers else "")


def _decoded(raw: bytes) -> _Named:
    try:
        return _NAMED.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return _Named()


def _text(raw: msgspec.Raw) -> str:
    view = memoryview(raw)
    if not view or view[0] != QUOTE or len(view) > MAX_NAME_BYTES + 2:
        return ""
    try:
        return msgspec.json.decode(raw, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""  # Its bytes are no UTF-8: raw values are not looked into before.
