"""Views of the fleet reach the picks: each pool its own signals, fresh ones only, near or from afar."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fleet.codec import decode_loads, encode_loads
from fleet.endpoint import Membership
from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, pool_of, whole

if TYPE_CHECKING:
    from fleet.store import FleetView

LONG = "You are a helpful assistant. " * 100
FIRST, SECOND = pool_of("p", 2, base=0), pool_of("q", 3, base=1)
NOW = 1000.0


def told(**signals: float) -> Load:
    return Load(**{name: Signal(value, NOW, "x") for name, value in signals.items()})


def view(loads: dict[str, Load], *, afar: bool) -> FleetView:
    here = view_with(Membership((FIRST, SECOND)), {}, loads)
    if not afar:
        return here
    return decode_loads(encode_loads(here, NOW).loads, here.membership, NOW)


@pytest.mark.parametrize("afar", [False, True])
def test_each_pool_goes_by_its_own_endpoints_signals(afar: bool) -> None:
    ends = [end.address for end in (*FIRST.endpoints, *SECOND.endpoints)]
    loads = {address: told(queue_depth=0) for address in ends}
    loads[ends[0]] = told(queue_depth=0, stalled=1)
    loads[ends[3]] = told(queue_depth=0, reachable=0)
    world = World(view(loads, afar=afar))
    for number in range(30):
        body = whole(chat(f"{number} {LONG}"), cluster="p")
        assert world.route(body).endpoints == (ends[1],)
        assert set(world.route(whole(body.body, cluster="q")).endpoints) == {ends[2], ends[4]}


@pytest.mark.parametrize("afar", [False, True])
def test_what_is_stale_leaves_nobody_out(afar: bool) -> None:
    """A view that nobody replaces ages: what it says of an endpoint ends with its signals."""
    loads = {end.address: told(queue_depth=0) for end in FIRST.endpoints}
    loads[FIRST.endpoints[0].address] = told(queue_depth=0, stalled=1)
    world = World(view(loads, afar=afar))
    assert len(world.route(whole(chat(LONG), cluster="p")).endpoints) == 1
    world.clock.now += 11
    assert len(world.route(whole(chat(LONG), cluster="p")).endpoints) == 2


def test_started_and_finished_requests_tell_the_pace() -> None:
    """The router passes on when they did, not only how many there are."""
    loads = {end.address: told(queue_depth=0) for end in FIRST.endpoints}
    world = World(view(loads, afar=False))
    slow, sound = (end.address for end in FIRST.endpoints)
    open_tokens = []
    for number in range(200):
        world.clock.now += 0.05
        if number % 10 == 0:
            stamp = {a: Load(queue_depth=Signal(0, world.clock.now, "x")) for a in loads}
            world.store.publish(view(stamp, afar=False))
        pick = world.route(whole(chat(f"{number} {LONG}"), cluster="p"))
        token = world.director.started(pick.endpoints[0])
        if token.address == sound:
            world.clock.now += 0.01
            world.director.finished(token)
        else:
            open_tokens.append(token)
    assert len(open_tokens) < 20
    for token in open_tokens:
        world.director.finished(token)
    assert world.director.traffic.in_flight(slow) == 0
