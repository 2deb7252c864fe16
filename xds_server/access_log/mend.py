"""Access log entries that Protobuf cannot read because a text is no UTF-8. I/O-free.

Envoy logs a session or request id with the client's bytes. Such an entry is read with question marks in
place of the bad bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from fleet.envoy_api.data.accesslog.v3 import accesslog_pb2
from fleet.wire_fields import SIZED, fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.descriptor import Descriptor

_DEEPEST: Final = 100
"""Protobuf itself reads no deeper."""
_MOST_FIELDS: Final = 2000
"""Of an entry that is mended: some 2 ms. Envoy writes a hundred."""


def read_or_mended(data: bytes, mended: Callable[[], None]) -> Any:
    """Return an entry, None for an unreadable one; `mended` is called for an entry with bad text."""
    try:
        return accesslog_pb2.HTTPAccessLogEntry.FromString(data)
    except DecodeError:
        pass  # Mended below, or yielded as None.
    copy = bytearray(data)
    try:
        kind: Descriptor = accesslog_pb2.HTTPAccessLogEntry.DESCRIPTOR  # type: ignore[assignment] # upb's.
        _mend(copy, 0, len(copy), kind, _DEEPEST, _MOST_FIELDS)
        entry = accesslog_pb2.HTTPAccessLogEntry.FromString(bytes(copy))
    except DecodeError:
        return None
    mended()
    return entry


def _mend(data: bytearray, start: int, end: int, kind: Descriptor, depth: int, left: int) -> int:
    """Put a question mark for each byte that makes a text no UTF-8; no length changes.

    Read at most `left` fields; return how many of these are left.

    Raises:
        DecodeError: a field cannot be read, or there are more.
    """
    for tag, first, last in fields(data, start, end):
        left -= 1
        if left < 0:
            raise DecodeError("too many fields")
        value = data[first:last]
        field = kind.fields_by_number.get(tag >> 3) if tag & 7 == SIZED else None
        if field is None or value.isascii():
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            data[first:last] = value.decode("utf-8", "surrogateescape").encode("utf-8", "replace")
        elif field.message_type is not None and depth:
            left = _mend(data, first, last, field.message_type, depth - 1, left)
    return left
