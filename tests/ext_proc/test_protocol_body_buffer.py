"""Buffered bodies take no more memory than is counted, however small their pieces are."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.protocol.body_buffer import BodyBuffer, BufferedBytes


@pytest.mark.parametrize("length", [0, 1, 2, 100])
def test_small_pieces_take_no_more_than_is_counted(length: int) -> None:
    total = BufferedBytes(1 << 28)
    buffer = BodyBuffer(total)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10_000):
            buffer.append(number.to_bytes(2, "big") * (length // 2) if length > 1 else bytes(length))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert total.now == buffer.size == 10_000 * length
    assert taken <= total.now * 9 / 8 + 4096


@given(st.lists(st.binary(max_size=4)), st.lists(st.binary(max_size=4)))
def test_pieces_are_joined_as_they_came(first: list[bytes], later: list[bytes]) -> None:
    """Also where more come after they were read; nothing is left after `clear`."""
    total = BufferedBytes(10)
    buffer = BodyBuffer(total)
    for pieces in (first, later):
        for piece in pieces:
            buffer.append(piece)
        together = b"".join(first if pieces is first else first + later)
        assert type(buffer.joined()) is bytes
        assert (buffer.joined(), buffer.size, total.now) == (together, len(together), len(together))
    buffer.clear()
    assert (buffer.joined(), buffer.size, total.now) == (b"", 0, 0)


def test_a_body_in_one_piece_is_not_copied() -> None:
    buffer, piece = BodyBuffer(BufferedBytes(10)), b"a whole body"
    buffer.append(piece)
    assert buffer.joined() is piece
