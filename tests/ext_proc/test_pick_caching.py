"""Engines that keep no prefixes: nothing is warm there, and load decides."""

from __future__ import annotations

from collections import Counter
from math import nan

import numpy as np

from ext_proc.pick import Reason
from ext_proc.pick.caching import MANY, SETTLED_SECONDS, Caching
from fleet.endpoint import Endpoint, Membership, Pool
from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, whole

ENDS = tuple(f"10.0.0.{number}:80" for number in range(4))
LONG = "You are a helpful assistant. " * 400


def publish(made: World, *, caching: float | None = None, hits: float | None = None) -> None:
    now = made.clock.now
    load = Load(
        queue_depth=Signal(0.0, now, "x"),
        prefix_caching=None if caching is None else Signal(caching, now, "x"),
        prefix_hit_ratio=None if hits is None else Signal(hits, now, "x"),
    )
    pool = Pool("p", tuple(Endpoint(address, "p", ("m",)) for address in ENDS))
    made.store.publish(view_with(Membership((pool,)), {}, dict.fromkeys(ENDS, load)))


def sent(made: World, count: int = 40) -> tuple[Counter[Reason], Counter[str]]:
    """Send turns of one conversation; return the reasons and the engines."""
    picks = [made.route(whole(chat(f"{LONG} {number}"))) for number in range(count)]
    return Counter(pick.reason for pick in picks), Counter(pick.endpoints[0] for pick in picks)


def test_page_without_prefix_caching_leaves_load_alone() -> None:
    made = World()
    publish(made, caching=1.0)
    assert sent(made)[0][Reason.WARM] >= 30
    publish(made, caching=0.0)
    reasons, engines = sent(made)
    assert set(reasons) == {Reason.COLD}
    assert max(engines.values()) <= 15, engines


def test_warm_prompts_without_a_hit_end_warmth() -> None:
    made = World()
    publish(made, hits=0.0)
    assert sent(made, 10 * MANY)[0][Reason.WARM] >= 9 * MANY
    made.clock.now += SETTLED_SECONDS
    publish(made, hits=0.0)
    assert sent(made)[0] == {Reason.COLD: 40}
    publish(made, hits=0.1)
    assert sent(made)[0] == {Reason.WARM: 40}, "a hit ends the verdict"


def off(caching: Caching, hits: float, now: float, stated: float = nan) -> list[bool]:
    caching.learn(np.array([stated]), np.array([hits]), now)
    return [] if caching.off is None else caching.off.tolist()


def test_hit_ratio_of_0_needs_many_warm_prompts() -> None:
    caching = Caching(1)
    for _ in range(10 * MANY):
        caching.sent(0, 0, 10_000, 0.0)
        caching.sent(0, 1_000, 1_000, 0.0)
        caching.sent(0, 40_000, 100_000, 0.0)
    assert off(caching, 0.0, 100.0) == [], "cold, too short for a whole block, warm in a small part"
    for _ in range(MANY):
        caching.sent(0, 9_000, 10_000, 100.0)
    assert off(caching, 0.0, 101.0) == [], "they may still wait"
    assert off(caching, 0.0, 100.0 + SETTLED_SECONDS) == [True]
    assert off(caching, nan, 200.0) == [True], "no query is no hit"
    assert off(caching, 0.01, 201.0) == []


def test_restart_ends_the_verdict() -> None:
    caching = Caching(1)
    for _ in range(MANY):
        caching.sent(0, 9_000, 10_000, 0.0)
    assert off(caching, 0.0, 100.0) == [True]
    moved = caching.moved_to(np.array([-1, 0]))
    moved.learn(np.full(2, nan), np.full(2, nan), 100.0)
    assert moved.off is not None
    assert moved.off.tolist() == [False, True]
    caching.forget(0)
    assert off(caching, nan, 101.0) == []
