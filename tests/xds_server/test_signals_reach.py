"""Who is unreachable: what this process finds, unless Envoys know better."""

from __future__ import annotations

import pytest

from tests.xds_server.test_signals_served import finished
from xds_server.signals.passive.reach import (
    AT_ONCE_SECONDS,
    BEGUN_LATER_SECONDS,
    FAILED_SECONDS,
    TRIES,
    Reach,
)

A, B, C, D, OTHER = (f"10.0.0.{number}:80" for number in range(5))
SECOND = 1.0


class World:
    """Pools, a clock, and a try of each port once a second."""

    def __init__(self, *addresses: str) -> None:
        self.reach, self.now = Reach(), 100.0
        self.reach.keep(dict.fromkeys(addresses, "p") | {OTHER: "other"})
        self.addresses = (*addresses, OTHER)
        for address in self.addresses:
            self.reach.connected(address)
        self.deaf: set[str] = set()
        self.answering: set[str] = set()
        """Who answers clients, twenty times a second."""

    def run(self, seconds: float) -> set[str]:
        """Let time pass; return who was unreachable at any moment of it."""
        away: set[str] = set()
        for step in range(round(seconds * 20)):
            self.now += 0.05
            for place, address in enumerate(self.addresses):
                if step % 20 == place * 4:
                    if address in self.deaf:
                        self.reach.missed(address, self.now)
                    else:
                        self.reach.connected(address)
            for address in self.answering:
                self.answered(address)
            away |= self.away
        return away

    def answered(self, address: str, took: float | None = 0.03) -> None:
        self.reach.note(finished(address, duration_seconds=took), self.now)

    def failed(self, address: str) -> None:
        self.reach.note(finished(address, 503, first_byte_seconds=None, flags=("UF",)), self.now)

    @property
    def away(self) -> set[str]:
        return set(self.reach.away(self.now))


def test_two_tries_without_connection_are_unreachable() -> None:
    world = World(A, B)
    world.deaf = {A}
    assert world.run(1) == set(), "one packet may be lost"
    assert TRIES == 2
    assert world.run(1) == {A}
    world.deaf = set()
    world.run(1)
    assert world.away == set()


def test_a_try_that_tells_nothing_ends_the_row() -> None:
    world = World(A, B)
    for _ in range(3):
        world.reach.missed(A, world.now)
        world.reach.unclear(A)
    assert world.away == set()


def test_a_port_that_refuses_is_unreachable_at_once() -> None:
    world = World(A)
    world.reach.missed(A, world.now, refused=True)
    assert world.away == {A}
    world.reach.connected(A)
    assert world.away == set()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_whole_pool_that_goes_at_once_is_our_own_network(count: int) -> None:
    """Also a pool of one; and for as long as it lasts."""
    pool = (A, B, C, D)[:count]
    world = World(*pool)
    world.deaf = set(pool)
    assert world.run(300) == set()
    world.answering = {A}
    assert world.run(60) == set()


def test_pool_gone_at_once_is_unreachable_where_envoys_agree() -> None:
    world = World(A, B)
    world.deaf = {A, B}
    world.run(5)
    world.failed(A)
    assert world.away == {A}
    world.run(FAILED_SECONDS + SECOND)
    assert world.away == set(), "clients try it again"
    world.failed(A)
    world.answered(A)
    assert world.away == set()


def test_one_that_went_long_before_the_rest_stays_unreachable() -> None:
    world = World(A, B)
    world.deaf = {A}
    world.run(AT_ONCE_SECONDS + 2)
    world.deaf = {A, B}
    world.run(5)
    assert world.away == {A}


def test_one_that_answers_clients_is_reachable_whatever_we_find() -> None:
    """Although others of its pool give us connections, and before any verdict."""
    world = World(A, B)
    world.answering, world.deaf = {A, B}, {A}
    assert world.run(60) == set()


def test_vanished_under_load_is_unreachable_after_last_answer() -> None:
    world = World(A, B)
    world.answering, world.deaf = {A, B}, set()
    world.run(5)
    world.answering, world.deaf = {B}, {A}
    assert world.run(BEGUN_LATER_SECONDS + 2 * SECOND) == {A}
    soon = World(A, B)
    soon.answering = {A, B}
    soon.run(5)
    soon.answering, soon.deaf = {B}, {A}
    soon.now += 0.05
    soon.failed(A)
    assert soon.run(TRIES * SECOND) == {A}, "Envoys say so too"


def test_later_answer_outranks_a_refused_connection() -> None:
    """Only one whose request began since, and of whose length something is known."""
    world = World(A, B)
    world.reach.missed(A, world.now, refused=True)
    world.now += BEGUN_LATER_SECONDS + 5
    for took in (None, 6.0):
        world.answered(A, took)
        assert world.away == {A}
    world.answered(A, 4.0)
    assert world.away == set()
    world.reach.missed(A, world.now, refused=True)
    assert world.away == set()


def test_who_is_gone_is_forgotten_and_is_no_peer() -> None:
    world = World(A, B)
    world.deaf = {A}
    world.run(3)
    world.reach.keep({B: "p"})
    assert world.away == set()
    world.reach.keep({A: "p"})
    world.deaf = {A}
    assert world.run(3) == set(), "nobody else of the pool is there"
