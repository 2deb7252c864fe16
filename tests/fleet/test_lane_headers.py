"""Blocks that are split into fields and cached decode as whole ones do."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hpack import Decoder, Encoder, HPACKError

from fleet.lane.headers import BlockError, BlockReader

UPDATE = b"\x20"
"""Of the table's size, to 0."""
NAMES = (b":path", b":status", b"te", b"x-trace-id")


def block_of(chance: Random) -> bytes:
    """Return a header block, some with a cut or a changed byte."""
    encoder = Encoder()
    encoder.header_table_size = 0
    encoder.encode([])  # The update.
    names = [chance.choice((*NAMES, chance.randbytes(chance.randrange(140)))) for _ in range(4)]
    fields = [(name, chance.choice((b"", b"200", b"/", chance.randbytes(9), bytes(127)))) for name in names]
    block = bytearray(encoder.encode(fields[: chance.randrange(5)], huffman=chance.random() < 0.5))
    if block and chance.random() < 0.3:
        block[chance.randrange(len(block))] = chance.randrange(256)
    return bytes(block[: chance.choice((1, 2, 3, 20, 1000, 1000, 1000))])


CHANCE = Random(1)
EDGES = [
    b"",
    UPDATE,
    2 * UPDATE,
    b"\x0f",
    b"\x0f\x00",
    b"\x00\x00\x00",
    b"\x00\x00",
    b"\x0f\x80\x00",
    b"\x88",
]


@pytest.mark.parametrize("blocks", [EDGES, [block_of(CHANCE) for _ in range(2000)]], ids=["edges", "random"])
def test_any_block_means_what_a_whole_decoder_says(blocks: list[bytes]) -> None:
    decoder, reader = Decoder(), BlockReader()
    decoder.max_allowed_table_size = 0
    reader.forbid_table()
    assert list(reader.fields(UPDATE)) == decoder.decode(UPDATE) == []
    for block in blocks:
        expected: object = BlockError
        with contextlib.suppress(HPACKError):
            expected = tuple((bytes(name), bytes(value)) for name, value in decoder.decode(block, raw=True))
        for _ in range(2):
            read: object = BlockError
            with contextlib.suppress(BlockError):
                read = reader.fields(block)
            assert read == expected, block


@pytest.mark.parametrize("update", [UPDATE, b"\x21", b"\x3e"])
def test_a_block_may_begin_with_two_updates(update: bytes) -> None:
    assert BlockReader().fields(2 * update) == ()
    with pytest.raises(BlockError):
        BlockReader().fields(3 * update)
