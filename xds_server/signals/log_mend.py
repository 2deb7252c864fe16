"""Access log messages of which Protobuf reads nothing, because some text in them is no UTF-8. I/O-free.

Envoy tells of a session or a request id as the client has sent it, and everything of a quarter of a second
stands in one message: so entries are taken out by the wire format and read one by one, those with such text
with question marks in its place. Source of the wire format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from fleet.envoy_api.data.accesslog.v3 import accesslog_pb2
from fleet.envoy_api.service.accesslog.v3 import als_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.descriptor import Descriptor

_VARINT, _64_BIT, _SIZED, _32_BIT = 0, 1, 2, 5
_LONGEST_VARINT: Final = 10
_LOGS: Final = als_pb2.StreamAccessLogsMessage.HTTP_LOGS_FIELD_NUMBER
_ENTRY: Final = als_pb2.StreamAccessLogsMessage.HTTPAccessLogEntries.LOG_ENTRY_FIELD_NUMBER
_DEEPEST: Final = 100
"""Protobuf itself reads no deeper."""


def entries_of(message: bytes, mended: Callable[[], None]) -> Iterator[Any]:
    """Yield each entry, None for one that cannot be read; `mended` hears of each that had bad text.

    It never raises: what follows a length that leads beyond the end is one entry that cannot be read.
    """
    try:
        for number, start, end in _sized(message, 0, len(message)):
            if number == _LOGS:
                for inner, first, last in _sized(message, start, end):
                    if inner == _ENTRY:
                        yield _entry(message[first:last], mended)
    except DecodeError:
        yield None


def _entry(data: bytes, mended: Callable[[], None]) -> Any:
    try:
        return accesslog_pb2.HTTPAccessLogEntry.FromString(data)
    except DecodeError:
        pass  # Mended below, or told as None.
    copy = bytearray(data)
    try:
        kind: Descriptor = accesslog_pb2.HTTPAccessLogEntry.DESCRIPTOR  # type: ignore[assignment] # upb's.
        _mend(copy, 0, len(copy), kind, _DEEPEST)
        entry = accesslog_pb2.HTTPAccessLogEntry.FromString(bytes(copy))
    except DecodeError:
        return None
    mended()
    return entry


def _mend(data: bytearray, start: int, end: int, kind: Descriptor, depth: int) -> None:
    """Put a question mark for each byte that makes a text no UTF-8; no length changes."""
    for number, first, last in _sized(data, start, end):
        value = data[first:last]
        field = kind.fields_by_number.get(number)
        if field is None or value.isascii():
            continue
        if field.type == FieldDescriptor.TYPE_STRING:
            data[first:last] = value.decode("utf-8", "surrogateescape").encode("utf-8", "replace")
        elif field.message_type is not None and depth:
            _mend(data, first, last, field.message_type, depth - 1)


def _sized(data: bytes | bytearray, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of each field that has a length; all others are passed over.

    Raises:
        DecodeError: a field leads beyond the end, or is of no kind that there is.
    """
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == _SIZED:
            size, at = _varint(data, at, end)
            if at + size > end:
                raise DecodeError("a length beyond the end")
            yield tag >> 3, at, at + size
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _64_BIT:
            at += 8
        elif kind == _32_BIT:
            at += 4
        else:
            raise DecodeError("no field")
    if at > end:
        raise DecodeError("a number beyond the end")


def _varint(data: bytes | bytearray, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _LONGEST_VARINT, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise DecodeError("no number")
