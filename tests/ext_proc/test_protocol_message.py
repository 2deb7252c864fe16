"""Fields of a message are read without its types, and a reader of hostile bytes ends."""

from __future__ import annotations

from random import Random

import pytest

from ext_proc.protocol.message import _MOST_FIELDS, fields

_SIZES = {1: 8, 5: 4}
"""Of the kinds with a fixed size."""


def varint(value: int) -> bytes:
    """Return a number as Protocol Buffers write it."""
    more, low = value >> 7, value & 0x7F
    return bytes([low | 0x80]) + varint(more) if more else bytes([low])


def written(number: int, kind: int, content: bytes) -> bytes:
    return varint(number << 3 | kind) + (varint(len(content)) if kind == 2 else b"") + content


@pytest.mark.parametrize("seed", range(20))
def test_bytes_are_read_among_all_kinds(seed: int) -> None:
    chance = Random(seed)
    data, expected = chance.randbytes(seed), []
    for _ in range(chance.randrange(20)):
        number, kind = chance.randrange(1, 2**20), chance.choice((0, 1, 2, 2, 5))
        content = chance.randbytes(_SIZES.get(kind) or chance.choice((0, 1, 127, 128, 300)))
        if kind == 2:
            expected.append((number, content))
        data += written(number, kind, content if kind else varint(chance.randrange(2**64)))
    read = fields(data, seed, len(data))
    assert [(number, data[start:end]) for number, start, end in read] == expected


@pytest.mark.parametrize("malformed", [b"\x0b", b"\xff" * 30, b"\x80", b"\x0a\x02a"])
@pytest.mark.parametrize("before", [0, 1])
def test_malformed_fields_end_the_reading(malformed: bytes, before: int) -> None:
    leading = before * written(1, 2, b"ab")
    data = leading + malformed
    assert list(fields(data + bytes(9), 0, len(data))) == before * [(1, 2, 4)]


def test_so_many_fields_are_read() -> None:
    data = written(1, 2, b"") * (2 * _MOST_FIELDS)
    assert len(list(fields(data, 0, len(data)))) == _MOST_FIELDS
