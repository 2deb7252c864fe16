"""Envoy's messages from bytes, bounded before anything is made of them. Pure.

A body is one run of bytes. The rest of a message has many small parts, each with a cost in time and some
hundred bytes of memory: 16 MB of empty headers are 8 million, which would block the loop for half a second.
So the rest has a limit of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_REST_BYTES: Final = 512 * 1024
"""Of a message without its body: headers, attributes and metadata. Envoy's default limit of headers is 60
KiB; 8,192 allowed endpoints take half of this."""
_BODIES: Final = (
    pb.ProcessingRequest.REQUEST_BODY_FIELD_NUMBER,
    pb.ProcessingRequest.RESPONSE_BODY_FIELD_NUMBER,
)
_BODY: Final = pb.HttpBody.BODY_FIELD_NUMBER
_MOST_FIELDS: Final = 64
"""Limit of fields that are read, of a message and of its body's message; Envoy sends fewer than ten."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def decode(data: bytes) -> pb.ProcessingRequest:
    """Read a message.

    Raises:
        DecodeError: the message is malformed, or too large without its body.
    """
    if len(data) > MAX_REST_BYTES and (rest := _rest_bytes(data)) > MAX_REST_BYTES:
        del data  # The error's traceback would keep it while the stream is answered.
        raise DecodeError(f"{rest} bytes without the body; allowed: {MAX_REST_BYTES}")
    message: pb.ProcessingRequest = pb.ProcessingRequest.FromString(data)
    return message


def _rest_bytes(data: bytes) -> int:
    """Return the size of a message without its bodies."""
    rest = len(data)
    for number, start, end in fields(data, 0, len(data)):
        if number in _BODIES:
            rest -= sum(end - start for inner, start, end in fields(data, start, end) if inner == _BODY)
    return rest


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the leading fields of bytes, up to the first malformed field."""
    for _ in range(_MOST_FIELDS):
        if at >= end:
            return
        key, at = _varint(data, at, end)
        kind = key & 7
        if kind == _BYTES:
            size, at = _varint(data, at, end)
            if at + size <= end:
                yield key >> 3, at, at + size
            at += size
        elif kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            return


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            break
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            break
    return value, at
