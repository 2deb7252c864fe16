"""A source's table while it is filled: what is shown, when it is another object, and who is followed."""

from __future__ import annotations

from math import isnan, nan

from fleet.signals import Source
from testing.signals import Load, Signal, loads_of
from xds_server.signals.board import SignalBoard

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


def board(*addresses: str) -> SignalBoard:
    made = SignalBoard()
    made.follow(addresses)
    return made


def test_put_replaces_all_of_an_endpoint() -> None:
    made = board(A, B)
    made.put(A, {"queue_depth": 1.0, "running": 2.0}, 5.0, Source.SCRAPE)
    made.put(A, {"running": 3.0}, 6.0, Source.SCRAPE)
    assert loads_of(made.table()) == {A: Load(running=Signal(3.0, 6.0, "scrape")), B: Load()}


def test_set_changes_one_signal() -> None:
    made = board(A)
    made.put(A, {"running": 2.0}, 5.0, Source.SCRAPE)
    made.set(A, "reachable", 0.0, 7.0, Source.SCRAPE)
    both = Load(running=Signal(2.0, 5.0, "scrape"), reachable=Signal(0.0, 7.0, "scrape"))
    assert loads_of(made.table()) == {A: both}
    made.set(A, "reachable", nan, nan, Source.SCRAPE)
    assert loads_of(made.table()) == {A: Load(running=Signal(2.0, 5.0, "scrape"))}
    assert made.table().sources.max() == Source.SCRAPE


def test_table_is_a_copy_until_something_is_written() -> None:
    made = board(A)
    made.put(A, {"running": 2.0}, 5.0, Source.SCRAPE)
    made.set(A, "reachable", 0.0, 7.0, Source.SCRAPE)
    before = made.table()
    made.set(A, "reachable", 0.0, 7.0, Source.SCRAPE)
    made.set(A, "awake", nan, nan, Source.SCRAPE)
    assert made.table() is before
    made.clear(A)
    assert loads_of(made.table()) == {A: Load()}
    assert before["running"][0] == 2.0


def test_followed_endpoints_keep_their_signals() -> None:
    made = board(A, B)
    made.put(B, {"running": 2.0}, 5.0, Source.SCRAPE)
    made.follow((B, C))
    assert loads_of(made.table()) == {B: Load(running=Signal(2.0, 5.0, "scrape")), C: Load()}
    made.put(C, {"running": 1.0}, 6.0, Source.SCRAPE)
    assert made.table()["running"].tolist() == [2.0, 1.0]


def test_strangers_are_ignored() -> None:
    made = board(A)
    before = made.table()
    assert not made.put(B, {"running": 2.0}, 5.0, Source.SCRAPE)
    assert not made.set(B, "running", 2.0, 5.0, Source.SCRAPE)
    assert made.table() is before
    assert isnan(made.value(B, "running"))


def test_board_tells_which_numbers_differ() -> None:
    made = board(A)
    assert made.put(A, {"running": 2.0}, 5.0, Source.SCRAPE)
    assert not made.put(A, {"running": 2.0}, 6.0, Source.SCRAPE), "only newer"
    assert made.put(A, {"queue_depth": 2.0}, 7.0, Source.SCRAPE)
    assert made.value(A, "queue_depth") == 2.0
    assert made.set(A, "reachable", 1.0, 7.0, Source.SCRAPE)
    assert not made.set(A, "reachable", 1.0, 8.0, Source.SCRAPE), "only newer"
    assert made.set(A, "reachable", nan, nan, Source.SCRAPE)
