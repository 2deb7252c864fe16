"""Block hashes: chained, bounded, only full blocks, apart for each model and salt."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.prompt.blocks import block_hashes, blocks_within, identity_of, runs_of, units

ME = identity_of("m", "")


def hashes(text: bytes, *, identity: bytes = ME, block_bytes: int = 4, max_blocks: int = 100) -> list[int]:
    return block_hashes(text, identity=identity, block_bytes=block_bytes, max_blocks=max_blocks)


def test_only_full_blocks_count() -> None:
    assert hashes(b"abc") == []
    assert len(hashes(b"abcd")) == 1
    assert hashes(b"abcdefg") == hashes(b"abcd")


def test_at_most_max_blocks() -> None:
    assert hashes(b"abcdefghijkl", max_blocks=2) == hashes(b"abcdefgh")
    assert hashes(b"abcd", max_blocks=0) == []


def test_hashes_fit_64_bits() -> None:
    assert all(0 <= block < 2**64 for block in hashes(bytes(range(200))))


def test_equal_blocks_at_different_places_differ() -> None:
    assert len(set(hashes(b"abcd" * 50))) == 50


def test_the_same_text_hashes_alike_in_every_process() -> None:
    """Replicas agree without talking, so the values may not depend on the process."""
    assert hashes(b"abcdefgh") == [1030636704106828742, 12843459174455145864]


@given(st.binary(max_size=60), st.binary(max_size=60), st.integers(1, 9))
def test_equal_hashes_mean_equal_prefixes(one: bytes, other: bytes, size: int) -> None:
    left, right = hashes(one, block_bytes=size), hashes(other, block_bytes=size)
    for number, (mine, theirs) in enumerate(zip(left, right, strict=False), start=1):
        assert (mine == theirs) == (one[: number * size] == other[: number * size])


IDENTITY = st.tuples(*[st.text(max_size=3)] * 4)


@given(IDENTITY, IDENTITY)
def test_identities_collide_only_when_equal(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (identity_of(*one) == identity_of(*other)) == (one == other)


def test_model_salt_adapter_and_tenant_each_make_other_blocks() -> None:
    one = [("m", "", "", ""), ("n", "", "", ""), ("m", "x", "", ""), ("m", "", "x", ""), ("m", "", "", "x")]
    assert len({hashes(b"abcd", identity=identity_of(*parts))[0] for parts in one}) == 5


def test_moving_a_letter_from_model_to_salt_is_another_identity() -> None:
    assert identity_of("ab", "c") != identity_of("a", "bc")
    assert hashes(b"abcd", identity=identity_of("ab", "c")) != hashes(
        b"abcd", identity=identity_of("a", "bc")
    )


def test_a_lone_surrogate_has_an_identity() -> None:
    assert identity_of("\ud835", "\udc00") != identity_of("\ud835\udc00", "")


def test_blocks_cover_all_but_a_thirtysecond() -> None:
    assert units(blocks_within(65_536)) == 65_536
    assert [blocks_within(kib * 4) for kib in (4, 48, 220)] == [16, 112, 183], "of 256 bytes, decision 35"
    for length in range(65_536):
        blocks = blocks_within(length)
        assert units(blocks) <= length < units(blocks + 1)
        assert length - units(blocks) <= length // 32
        assert length > 64 or units(blocks) == length


@pytest.mark.parametrize("size", [63, 64, 65, 127, 130, 255, 1000, 4095, 65_536, 70_000])
def test_a_longer_prompt_keeps_the_blocks_of_a_shorter_one(size: int) -> None:
    text = bytes(random.Random(size).randbytes(70_000))
    longest = hashes(text, block_bytes=1, max_blocks=65_536)
    shorter = hashes(text[:size], block_bytes=1, max_blocks=65_536)
    assert len(shorter) == blocks_within(min(size, 65_536))
    assert shorter == longest[: len(shorter)]
    assert len(set(longest)) == len(longest) == 384


def test_one_byte_changes_the_blocks_from_it_on() -> None:
    text = bytes(1000)
    for at in (0, 63, 64, 65, 127, 128, 500):
        changed = text[:at] + b"x" + text[at + 1 :]
        one, other = (hashes(each, block_bytes=1, max_blocks=1000) for each in (text, changed))
        pairs = zip(one, other, strict=True)
        assert [mine == theirs for mine, theirs in pairs].count(True) == blocks_within(at)


def test_runs_inside_a_long_block_differ() -> None:
    text = bytes(random.Random(1).randbytes(3000))
    blocks = hashes(text, block_bytes=1, max_blocks=3000)
    runs = runs_of(blocks, 8).tolist()
    assert len(runs) == len(set(runs)) == units(len(blocks)) // 8
    assert runs[7] == blocks[63], "64 units"
    assert runs_of(blocks[:100], 8).tolist() == runs[: units(100) // 8]
    assert runs_of([], 8).size == 0


def test_a_block_of_no_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="block_bytes 0"):
        hashes(b"abcd", block_bytes=0)
