"""An engine that refuses at once holds nothing, for whomever: that is no room, and must draw nothing."""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

if TYPE_CHECKING:
    from ext_proc.director.traffic import Token

ENGINES = 4
TICK_SECONDS = 0.5
REFUSED_SECONDS = 0.003


class Site:
    """Engines under requests of ours and others that go by weights. What they hold is known at each tick."""

    def __init__(self, refusing: int) -> None:
        self.draw = Random(1)
        self.world = World(view_of(pool_of(count=ENGINES)))
        assert self.world.director.pools.follow()
        self.addresses = self.world.director.pools.find("p", "m").shape.addresses  # type: ignore[union-attr]
        self.refusing = set(self.addresses[:refusing])
        self.ends: list[tuple[float, int, str, Token | None]] = []
        self.running = Counter[str]()
        self.tick_at = self.world.clock.now
        self.got = Counter[str]()

    def run(self, ours: float, others: float, seconds: float) -> None:
        """Send so many requests a second."""
        until = self.world.clock.now + seconds
        for number in range(10**6):
            at = self.world.clock.now + self.draw.expovariate(ours + others)
            if at >= until:
                return
            self.advance(at)
            if self.draw.random() < ours / (ours + others):
                pick = self.world.route(whole(chat(f"{number} hello")))
                self.got[pick.endpoints[0]] += 1
                self.begin(number, pick.endpoints[0], self.world.director.started(pick.endpoints[0]))
            else:
                self.begin(number, self.draw.choice(self.addresses), None)

    def begin(self, number: int, address: str, token: Token | None) -> None:
        self.running[address] += 1
        takes = REFUSED_SECONDS if address in self.refusing else self.draw.uniform(0.05, 0.15)
        heapq.heappush(self.ends, (self.world.clock.now + takes, number, address, token))

    def advance(self, until: float) -> None:
        while (at := min(self.ends[0][0] if self.ends else until, self.tick_at)) < until:
            self.world.clock.now = at
            if at == self.tick_at:
                self.tick_at += TICK_SECONDS
                self.publish()
            else:
                _, _, address, token = heapq.heappop(self.ends)
                self.running[address] -= 1
                if token is not None:
                    self.world.director.finished(token)
        self.world.clock.now = until

    def publish(self) -> None:
        view = self.world.store.view
        assert view is not None
        now = self.world.clock.now
        loads = {
            address: Load(
                queue_depth=Signal(0.0, now, "scrape"),
                running=Signal(float(self.running[address]), now, "scrape"),
            )
            for address in self.addresses
        }
        self.world.store.publish(view_with(view.membership, {}, loads))


@pytest.mark.untraced
@pytest.mark.parametrize("others", [0.0, 30.0, 90.0])
@pytest.mark.parametrize("refusing", [1, 2])
def test_engines_that_refuse_at_once_get_their_share_only(refusing: int, others: float) -> None:
    """With others' requests, which they refuse as well, they looked emptier: two of four drew all of ours."""
    site = Site(refusing)
    site.run(30.0, others, 3.0)
    site.got.clear()
    site.run(30.0, others, 40.0)
    share = sum(site.got[address] for address in site.refusing) / site.got.total()
    assert share <= 1.15 * refusing / ENGINES


def test_where_all_refuse_they_are_all_alike() -> None:
    """There is no peer to be held against."""
    site = Site(ENGINES)
    site.run(30.0, 30.0, 20.0)
    assert max(site.got.values()) <= 1.3 * site.got.total() / ENGINES
