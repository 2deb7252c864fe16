"""The fields of a serialised Protobuf message: read before anything is made of them, or written as one. Pure.

A field of two bytes becomes an object of a hundred, so a bound on a message's bytes alone bounds little.
Source: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZED: Final = 2
"""The kind, in a tag's lowest bits, of texts, bytes, messages and packed lists."""
_VARINT, _64_BIT, _32_BIT = 0, 1, 5
_LONGEST_VARINT: Final = 10


def sized(number: int) -> int:
    """Return the tag of a field that has a length."""
    return number << 3 | SIZED


@lru_cache(1024)
def varint_of(number: int) -> bytes:
    """Return a number of 0 or more as a varint."""
    encoded = bytearray()
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def field_of(tag: bytes, content: bytes) -> bytes:
    """Return a field that has a length; `tag` as it is serialised."""
    return b"".join((tag, varint_of(len(content)), content))


def fields(data: bytes | bytearray, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the tag of each field, and begin and end of its content.

    Raises:
        DecodeError: a field leads beyond the end, or is of no kind that there is.
    """
    while at < end:
        tag = data[at]
        if tag < 0x80:  # Most are: a call a field would double the time.
            at += 1
        else:
            tag, at = _varint(data, at, end)
        begin, kind = at, tag & 7
        if kind == SIZED:
            if at < end and (size := data[at]) < 0x80:
                begin = at + 1
            else:
                size, begin = _varint(data, at, end)
            at = begin + size
        elif kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _64_BIT:
            at += 8
        elif kind == _32_BIT:
            at += 4
        else:
            raise DecodeError("no field")
        if at > end:
            raise DecodeError("a field beyond the end")
        yield tag, begin, at


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
