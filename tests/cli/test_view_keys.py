"""Keys: each does what its help says, and nothing that a terminal may send breaks the view."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from warmroute.cli.view.keys import Screen, decode, press

SORTABLE = ("endpoint", "weight", "p99")


def pressed(screen: Screen, data: bytes, rows: int = 30, page: int = 1) -> Screen:
    for key in decode(data):
        screen = press(screen, key, SORTABLE, rows, page)
    return screen


def test_s_walks_the_columns_and_begins_anew() -> None:
    assert pressed(Screen(), b"s").sort == "weight"
    assert pressed(Screen(), b"sss").sort == "endpoint"
    assert pressed(Screen(sort="gone"), b"s").sort == "endpoint"


def test_reverse_pause_and_quit() -> None:
    assert pressed(Screen(), b"S").reverse
    assert pressed(Screen(), b"p").paused
    assert not pressed(Screen(), b"pp").paused
    assert pressed(Screen(), b"q").quit


def test_a_filter_is_typed_mended_and_taken() -> None:
    typing = pressed(Screen(offset=4), b"/qx\x7fs")
    assert (typing.editing, typing.filter, typing.quit) == ("qs", "", False)
    taken = pressed(typing, b"\r")
    assert (taken.editing, taken.filter, taken.offset) == (None, "qs", 0)
    assert pressed(taken, b"/ab\x1b").filter == "qs", "Esc leaves it as it was"
    assert pressed(taken, b"\x1b").filter == "", "and outside of typing clears it"


def test_scrolling_stays_within_the_rows() -> None:
    assert pressed(Screen(), b"\x1b[B\x1bOBj", 3).offset == 2
    assert pressed(Screen(offset=5), b"\x1b[A").offset == 4
    assert pressed(Screen(), b"k").offset == 0
    assert pressed(Screen(), b"j", 0).offset == 0


def test_a_page_is_what_the_screen_shows() -> None:
    assert pressed(Screen(), b"\x1b[6~", 100, page=23).offset == 23
    assert pressed(Screen(offset=50), b"\x1b[5~", 100, page=23).offset == 27
    assert pressed(Screen(), b"\x1b[6~" * 9, 100, page=23).offset == 77, "the last page is full"
    assert pressed(Screen(), b"\x1b[6~j", 5, page=23).offset == 0, "all are shown"


@pytest.mark.parametrize("end", [b"G", b"\x1b[F", b"\x1bOF", b"\x1b[4~"])
@pytest.mark.parametrize("home", [b"g", b"\x1b[H", b"\x1bOH", b"\x1b[1~"])
def test_home_and_end(home: bytes, end: bytes) -> None:
    last = pressed(Screen(), end, 100, page=23)
    assert last.offset == 77
    assert pressed(last, b"k", 100, page=23).offset == 76, "one key moves one row there too"
    assert pressed(last, home, 100, page=23).offset == 0


def test_after_fewer_rows_one_key_moves_one_row() -> None:
    assert pressed(Screen(offset=77), b"k", 30, page=23).offset == 6


@pytest.mark.parametrize("key", [b"?", b"h"])
def test_the_keys_are_shown_until_any_key(key: bytes) -> None:
    shown = pressed(Screen(), key)
    assert shown.help
    assert pressed(shown, b"s") == Screen(), "which does nothing else"
    assert pressed(shown, b"q").quit


@pytest.mark.parametrize("data", [b"\x1b[1;5C", b"\x1bOP", b"\x1b[200~", b"\x1bx", b"\xff\xfe", b"\x1b["])
def test_keys_without_a_meaning_do_nothing(data: bytes) -> None:
    assert pressed(Screen(), data) == Screen()


@given(some.binary(max_size=40), some.integers(0, 3))
def test_no_input_breaks_the_view(data: bytes, rows: int) -> None:
    screen = pressed(Screen(), data, rows, page=1)
    assert screen.sort in SORTABLE
    assert 0 <= screen.offset <= max(0, rows - 1)
