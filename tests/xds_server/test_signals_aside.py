"""Costly pages: who waits for whom, and how often they are read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import LimitSettings, SignalSettings
from xds_server.signals.scrape import scraper as scraper_module
from xds_server.signals.scrape.aside import LOOP_BYTES, Aside, Cost
from xds_server.signals.scrape.fetch import PageFetcher
from xds_server.signals.scrape.page import PageError
from xds_server.signals.scrape.ranks import ONE
from xds_server.signals.scrape.scraper import Scraper

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = LOOP_BYTES + 1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_of_those_who_wait_the_cheapest_goes_first() -> None:
    aside, order = Aside(), list[str]()
    costs = {"first": 9.0, "costly": 0.2, "new": 0.0, "gone": 0.0, "cheap": 0.01, "as cheap": 0.01}
    loop, hold = asyncio.get_running_loop(), asyncio.Event()

    def read(name: str) -> None:
        order.append(name)
        if name == "first":
            asyncio.run_coroutine_threadsafe(hold.wait(), loop).result(60)

    tasks = {
        name: asyncio.create_task(aside.run(Cost(seconds), LARGE, lambda name=name: read(name)))  # type: ignore[misc]
        for name, seconds in costs.items()
    }
    await until(lambda: bool(order))
    tasks.pop("gone").cancel()
    await asyncio.sleep(0)
    hold.set()
    await asyncio.gather(*tasks.values())
    assert order == ["first", "new", "cheap", "as cheap", "costly"]
    await aside.run(Cost(), LARGE, lambda: read("later"))
    assert order[-1] == "later"


async def test_who_is_gone_when_the_turn_comes_hands_it_on() -> None:
    aside, order = Aside(), list[str]()
    await aside._begin(0.0)
    waiting = [asyncio.create_task(aside.run(Cost(), LARGE, lambda n=n: order.append(n))) for n in "ab"]  # type: ignore[misc]
    await asyncio.sleep(0)
    aside._pass_on()
    waiting[0].cancel()
    await asyncio.wait(waiting)
    assert order == ["b"]
    assert not aside._busy


async def test_small_pages_are_read_one_in_a_pass() -> None:
    passes, at, aside = 0, list[int](), Aside()

    async def counting() -> None:
        nonlocal passes
        while len(at) < 30:
            passes += 1
            await asyncio.sleep(0)

    reads = [aside.run(Cost(), LOOP_BYTES, lambda: at.append(passes)) for _ in range(30)]
    await asyncio.gather(counting(), *reads)
    assert len(set(at)) == 30


@pytest.mark.parametrize("size", [LOOP_BYTES, LARGE])
async def test_cost_of_a_refused_page_counts(size: int) -> None:
    times, cost = iter([3.0, 5.5]), Cost()

    def refuse() -> None:
        raise PageError("too many lines")

    with pytest.raises(PageError):
        await Aside(lambda: next(times)).run(cost, size, refuse)
    assert cost.cpu_seconds == 2.5


def test_a_costly_page_is_read_less_often_and_never_goes_stale() -> None:
    assert Cost(0.005).pause(1.0, 10.0) == 0.0
    assert Cost(0.02).pause(1.0, 10.0) == 0.0
    assert Cost(0.04).pause(1.0, 10.0) == pytest.approx(1.0)
    assert Cost(5.0).pause(1.0, 10.0) == pytest.approx(10.0 / 3 - 1.0)
    assert Cost(5.0).pause(30.0, 120.0) == pytest.approx(10.0)


async def test_hostile_pages_are_fetched_less_often_than_honest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    fetches: dict[str, int] = {"h": 0, "x": 0}
    hosts = {"http://10.0.0.1:80/": "h", "http://10.0.0.2:80/": "x"}

    class Reader:
        second_page = ""
        malformed_lines = 0
        ranks = ONE

        def read(self, page: bytes, *_: Any) -> dict[str, float]:
            times.append(times[-1] + (100.0 if page == b"x" else 0.0))
            if page == b"x":
                raise PageError("too many lines")
            return {}

    async def fetch(_: PageFetcher, url: str, *__: Any, **___: Any) -> bytes:
        fetches[hosts[url]] += 1
        return hosts[url].encode()

    times = [0.0]
    monkeypatch.setattr(PageFetcher, "fetch", fetch)
    monkeypatch.setattr(scraper_module, "Aside", lambda: Aside(lambda: times[-1]))
    signals = SignalSettings(
        scrape_interval_seconds=0.05, scrape_timeout_seconds=0.05, stale_after_seconds=3.0
    )
    make: Any = lambda *_: Reader()  # noqa: E731
    scraper = Scraper(signals, LimitSettings(), make_reader=make)
    endpoints = tuple(Endpoint(url[7:-1], "p", metrics_url=url) for url in hosts)
    scraper.update(Membership((Pool("p", endpoints),)))
    await until(lambda: fetches["x"] >= 3)
    await scraper.close()
    assert fetches["h"] > 3 * fetches["x"]
