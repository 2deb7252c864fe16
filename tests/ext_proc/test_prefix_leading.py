"""Level 1: digests of leading parts, to who had them."""

from __future__ import annotations

import random

import pytest

from ext_proc.prefix.leading import AgeingFilter, LeadingMap, leading_mark
from ext_proc.prompt.blocks import block_hashes

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
draw = random.Random(6)


def key() -> int:
    return draw.randrange(1, 2**64)


def test_who_had_it_is_known_from_the_second_time_on() -> None:
    leading, one = LeadingMap(), key()
    leading.record(one, A)
    assert leading.holders(one) == ()
    assert len(leading) == 0
    leading.record(one, B)
    assert leading.holders(one) == (B,)
    leading.record(one, A)
    assert leading.holders(one) == (A, B)
    leading.record(one, B)
    assert leading.holders(one) == (B, A)


def test_only_the_last_ones_to_have_it_are_kept() -> None:
    leading, one = LeadingMap(endpoints_each=2), key()
    for address in (A, A, B, C):
        leading.record(one, address)
    assert leading.holders(one) == (C, B)


def test_the_map_is_bounded_and_the_least_recently_used_goes() -> None:
    leading = LeadingMap(entries=3)
    keys = [key() for _ in range(4)]
    for part in keys[:3]:
        leading.record(part, A)
        leading.record(part, A)
    assert leading.holders(keys[0]) == (A,)
    leading.record(keys[3], B)
    leading.record(keys[3], B)
    assert len(leading) == 3
    assert [leading.holders(part) for part in keys] == [(A,), (), (A,), (B,)]


def test_prompts_that_come_once_push_nothing_out() -> None:
    leading = LeadingMap(entries=100)
    hot = key()
    leading.record(hot, A)
    leading.record(hot, A)
    for _ in range(500):
        leading.record(key(), B)
    assert leading.holders(hot) == (A,)
    assert len(leading) <= 1 + 500 * 0.03


def test_forgotten_endpoint_has_no_parts_after_its_return() -> None:
    leading, one = LeadingMap(), key()
    for address in (A, A, B):
        leading.record(one, address)
    leading.forget(A)
    leading.forget(A)
    assert leading.holders(one) == (B,)
    other = key()
    leading.record(other, A)
    leading.record(other, A)
    assert leading.holders(one) == (B,)
    assert leading.holders(other) == (A,)


# Parts that are in use.


def mark_of(text: bytes, identity: bytes = b"m", block_bytes: int = 16, leading_bytes: int = 64) -> int:
    blocks = block_hashes(text, identity=identity, block_bytes=block_bytes, max_blocks=1000)
    return leading_mark(text, identity, blocks, block_bytes, leading_bytes)[0]


@pytest.mark.parametrize("block_bytes", [16, 24, 64, 100])
def test_marks_are_equal_where_leading_parts_are(block_bytes: int) -> None:
    """However blocks lie in the leading part, and where a prompt ends before it does."""
    texts = [bytes([65 + n]) * 30 + b"b" * (size - 30) for size in (120, 130, 64, 60, 40) for n in range(2)]
    texts += [texts[0][:63] + b"x" + texts[0][64:], texts[0][:70], texts[0][:50] + b"y" * 70]
    pairs = {
        (mark_of(text, identity, block_bytes), (text[:64], identity))
        for text in texts
        for identity in (b"m", b"n")
        if len(text) >= block_bytes
    }
    assert len({mark for mark, _ in pairs}) == len({part for _, part in pairs}) == len(pairs) >= 4
    assert 0 not in {mark for mark, _ in pairs}


@pytest.mark.parametrize(("at", "differs"), [(0, True), (1023, True), (1999, True), (2000, False)])
def test_marks_of_long_leading_parts_end_with_them(at: int, differs: bool) -> None:
    text = bytes(range(250)) * 12
    changed = text[:at] + b"?" + text[at + 1 :]
    marks = {mark_of(each, leading_bytes=2000) for each in (text, changed)}
    assert len(marks) == 1 + differs


def test_part_in_use_is_recorded_at_once() -> None:
    leading, one = LeadingMap(endpoints_each=2), key()
    leading.record(one, A, in_use=True)
    assert leading.holders(one) == (A,)
    for address in (A, B, B, C):
        leading.record(one, address, in_use=True)
    assert leading.holders(one) == (C, B)
    leading.forget(C)
    assert leading.holders(one) == (B,)
    leading.record(one, C, in_use=True)
    assert leading.holders(one) == (C, B)


def test_a_part_in_use_stays() -> None:
    leading, hot = LeadingMap(entries=10), key()
    for _ in range(500):
        leading.record(hot, A, in_use=True)
        leading.record(key(), B, in_use=True)
    assert leading.holders(hot) == (A,)
    assert len(leading) == 10


def test_of_more_parts_in_use_than_fit_most_stay() -> None:
    """They would push each other out: none would be found."""
    leading, marks, hits = LeadingMap(entries=100), [key() for _ in range(200)], 0
    for number in range(4000):
        mark = marks[number % 200]
        hits += mark in leading._parts
        leading.record(mark, A, in_use=True)
    assert hits > 4000 / 4
    assert len(leading) == 100


def test_the_filter_knows_the_last_keys_and_forgets_older_ones() -> None:
    keys_lately = AgeingFilter(1000)
    keys = [key() for _ in range(4000)]
    assert sum(keys_lately.add(one) for one in keys) < 80
    assert all(one in keys_lately for one in keys[-1000:])
    assert all(keys_lately.add(one) for one in keys[-500:])
    assert sum(one in keys_lately for one in keys[:1500]) < 60


def test_the_filter_is_seldom_wrong() -> None:
    """The share that its documentation states, with both generations full."""
    keys_lately = AgeingFilter(20_000)
    for _ in range(39_999):
        keys_lately.add(key())
    assert keys_lately.nbytes == 4 * 20_000
    assert sum(key() in keys_lately for _ in range(20_000)) / 20_000 < 0.013


def test_a_filter_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="entries 0"):
        AgeingFilter(0)
