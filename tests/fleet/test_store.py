"""The store between the services: no view is missed, counts follow the workers that are there."""

import asyncio
import random
from collections import Counter

from fleet.columns import MOST_PREFILL_SECONDS
from fleet.store import FleetStore, FleetView, Traffic


async def test_a_view_published_before_the_wait_is_not_missed() -> None:
    store, first, second = FleetStore(), FleetView(), FleetView()
    store.publish(first)
    waiting = asyncio.create_task(store.changed(first))
    store.publish(second)
    assert await asyncio.wait_for(waiting, 60) is second
    assert await asyncio.wait_for(store.changed(first), 60) is second


async def test_the_same_view_is_no_change() -> None:
    store, view = FleetStore(), FleetView()
    store.publish(view)
    waiting = asyncio.create_task(store.changed(view))
    store.publish(view)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    store.publish(FleetView())
    assert await asyncio.wait_for(waiting, 60) is store.view


async def test_in_flight_is_summed_and_forgotten_with_its_worker() -> None:
    store = FleetStore()
    store.report("one", [Traffic("a:1", 2, 2, 0), Traffic("b:1", 1, 1, 0)])
    store.report("two", [Traffic("a:1", 5, 5, 0)])
    assert store.in_flight() == {"a:1": 7, "b:1": 1}
    assert store.in_flight(except_worker="two") == {"a:1": 2, "b:1": 1}
    store.forget_worker("one")
    assert store.in_flight() == {"a:1": 5}


def test_sums_are_those_of_the_newest_reports() -> None:
    """They are kept between reports: an endpoint that nobody has anything on is no entry."""
    rng, store, reports = random.Random(1), FleetStore(), {}
    for _ in range(300):
        worker = f"w{rng.randrange(3)}"
        if rng.random() < 0.2:
            store.forget_worker(worker)
            reports.pop(worker, None)
        else:
            reports[worker] = {f"h:{n}": rng.randrange(3) for n in range(4) if rng.random() < 0.7}
            store.report(worker, [Traffic(a, count, 9, 0) for a, count in reports[worker].items()])
        for left_out in ("", "w1"):
            sums = Counter[str]()
            for name, counts in reports.items():
                sums.update(counts if name != left_out else {})
            assert store.in_flight(left_out) == {a: count for a, count in sums.items() if count}


def prefill(store: FleetStore, worker: str, seconds: float | None) -> None:
    store.report(worker, [Traffic("a:1", 1, 1, 0, prefill_seconds_total=seconds)])


def test_prefill_of_others_grows_with_their_reports_only() -> None:
    """A stream's first report is where it begins, and one that ends or restarts takes nothing off."""
    store = FleetStore()
    for seconds in (500.0, 502.0):
        prefill(store, "one", seconds)
    prefill(store, "two", None)
    assert (store.prefill("one"), store.prefill("two")) == ({"a:1": 0.0}, {"a:1": 2.0})
    store.forget_worker("one")
    prefill(store, "one#2", 502.0)
    assert store.prefill("two") == {"a:1": 2.0}
    prefill(store, "one#2", 1e300)
    assert store.prefill("two") == {"a:1": 2.0 + MOST_PREFILL_SECONDS}
