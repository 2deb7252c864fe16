"""An engine that drops its cache is cold, in the own index too, whatever becomes of its events."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.endpoint import Endpoint, Pool
from fleet.store import FleetStore
from tests.ext_proc.kv_worlds import CLEARED, World, answer, batch, settle, stored
from tests.ext_proc.worlds import settings_with, view_of

SIZE = 16
A, B = "10.0.0.1:80", "10.0.0.2:80"


def emptied(world: World) -> list[str]:
    addresses: list[str] = []
    world.view.on_emptied = lambda address, _rank: addresses.append(address)
    return addresses


def test_flush_is_reported() -> None:
    world = World()
    addresses = emptied(world)
    world.tell(stored([1], None, range(SIZE), SIZE))
    assert addresses == []
    world.tell(CLEARED)
    assert addresses == ["a"]


def test_missed_flush_is_reported_and_an_old_one_is_not() -> None:
    """What an engine told before us is replayed from its start, and may be hours old."""
    world = World()
    addresses = emptied(world)
    (other,) = world.view.add("b")
    other.connect()
    old = batch(CLEARED, stored([1], None, range(SIZE), SIZE))
    other.sequence.replay_from = None
    other.sequence.replayed(0, old)
    settle(other)
    other.sequence.replay_failed()
    assert other.sequence.replay_from == 1
    other.sequence.replay_from = None
    other.sequence.replayed(1, old)
    settle(other)
    answer(other)
    assert addresses == []
    other.sequence.live(3, batch())
    assert other.sequence.replay_from == 2
    answer(other, (2, batch(CLEARED)))
    assert addresses == ["b"]
    other.sequence.live(4, batch(CLEARED))
    settle(other)
    assert addresses == ["b", "b"]


def test_another_process_is_reported_once() -> None:
    world = World()
    addresses = emptied(world)
    for number in range(3):
        world.tell(stored([number], None, range(SIZE), SIZE))
    world.tracker.disconnect()
    world.tracker.connect()
    answer(world.tracker)
    assert world.tracker.sequence.replay_from == 0
    answer(world.tracker, (0, batch(stored([7], None, range(SIZE), SIZE))))
    assert addresses == ["a"]


@pytest.mark.parametrize("lost", ["a gap", "junk", "the connection"])
def test_what_we_have_lost_the_engine_has_not(lost: str) -> None:
    """Only the events' word is void then."""
    world = World(replayable=False)
    world.tell(stored([1], None, range(SIZE), SIZE))
    addresses = emptied(world)
    if lost == "the connection":
        world.tracker.disconnect()
        world.tracker.connect()
    world.tracker.sequence.live(
        *{"a gap": (9, batch()), "junk": (1, b"x"), "the connection": (9, batch())}[lost]
    )
    settle(world.tracker)
    assert world.tracker.slot.blocks == {}
    assert addresses == []


async def test_the_own_index_forgets_what_events_say_is_gone() -> None:
    """And keeps how much fits into that engine."""
    store = FleetStore()
    server = ExtProcServer(settings_with(), store, CollectorRegistry(), TracerProvider(), follow=False)
    router, view = server._director, server._kv.view
    store.publish(view_of(Pool("p", (Endpoint(A, "p"), Endpoint(B, "p")))))
    assert router.pools.follow()
    router.warmth.index.resize(A, 5)
    router.pools._index_limits[A] = 5
    blocks = list(range(1, 200))
    router.warmth.record(A, blocks)
    router.warmth.record(B, blocks)
    assert router.warmth.index.block_count(A) == 5
    (tracker,) = view.add(A)
    tracker.connect()
    answer(tracker)
    tracker.sequence.live(0, batch(CLEARED))
    settle(tracker)
    assert router.warmth.index.block_count(A) == 0
    assert router.warmth.index.block_count(B) == len(blocks)
    router.warmth.record(A, blocks)
    assert router.warmth.index.block_count(A) == 5
    view.on_emptied("10.0.0.9:80", 0)
    assert router.warmth.index.block_count("10.0.0.9:80") == 0
    await server.stop()
