"""Level 1: digests of leading parts, to who had them."""

from __future__ import annotations

import random

import pytest

from ext_proc.prefix.leading import AgeingFilter, LeadingMap, leading_key

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
draw = random.Random(6)


def key() -> bytes:
    return draw.randbytes(32)


def test_a_key_tells_identity_and_leading_bytes_apart() -> None:
    keys = {
        leading_key(b"hello", b"model"),
        leading_key(b"hello", b"other"),
        leading_key(b"hullo", b"model"),
        leading_key(b"lhello", b"mode"),
        leading_key(b"", b"modelhello"),
    }
    assert len(keys) == 5
    assert {len(held) for held in keys} == {32}


def test_what_follows_the_leading_bytes_does_not_count() -> None:
    assert leading_key(b"abcd" + b"x", b"m", 4) == leading_key(b"abcd" + b"y", b"m", 4)
    assert leading_key(b"abc", b"m", 4) != leading_key(b"abcd", b"m", 4)


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
    for held in keys[:3]:
        leading.record(held, A)
        leading.record(held, A)
    assert leading.holders(keys[0]) == (A,)
    leading.record(keys[3], B)
    leading.record(keys[3], B)
    assert len(leading) == 3
    assert [leading.holders(held) for held in keys] == [(A,), (), (A,), (B,)]


def test_prompts_that_come_once_push_nothing_out() -> None:
    leading = LeadingMap(entries=100)
    hot = key()
    leading.record(hot, A)
    leading.record(hot, A)
    for _ in range(500):
        leading.record(key(), B)
    assert leading.holders(hot) == (A,)
    assert len(leading) <= 1 + 500 * 0.03


def test_a_forgotten_endpoint_is_named_no_more_even_when_it_returns() -> None:
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


def test_the_filter_knows_the_last_keys_and_forgets_older_ones() -> None:
    held = AgeingFilter(1000)
    keys = [key() for _ in range(4000)]
    assert sum(held.add(one) for one in keys) < 80
    assert all(one in held for one in keys[-1000:])
    assert all(held.add(one) for one in keys[-500:])
    assert sum(one in held for one in keys[:1500]) < 60


def test_the_filter_is_seldom_wrong() -> None:
    """The share that its documentation states, with both generations full."""
    held = AgeingFilter(20_000)
    for _ in range(39_999):
        held.add(key())
    assert held.nbytes == 4 * 20_000
    assert sum(key() in held for _ in range(20_000)) / 20_000 < 0.013


def test_a_filter_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="entries 0"):
        AgeingFilter(0)
