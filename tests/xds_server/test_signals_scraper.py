"""The scraper against real HTTP servers on loopback: whatever a page does, scraping goes on."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import socket
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import LimitSettings, SignalSettings
from testing.signals import Load, loads_of
from tests.envoy.fickle import Deaf
from xds_server.http1.client import FetchError
from xds_server.signals.scrape import scraper as scraper_module
from xds_server.signals.scrape.fetch import PageFetcher
from xds_server.signals.scrape.ranks import ONE
from xds_server.signals.scrape.scraper import Scraper, phase

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE = (Path(__file__).parent / "data" / "vllm-metrics.txt").read_bytes()
FAST = SignalSettings(scrape_interval_seconds=0.02, scrape_timeout_seconds=60.0)
SOON = SignalSettings(scrape_interval_seconds=0.02, scrape_timeout_seconds=0.2)


@asynccontextmanager
async def serving(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get("/metrics", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scraping(
    *endpoints: Endpoint,
    signals: SignalSettings = FAST,
    registry: CollectorRegistry | None = None,
    limits: LimitSettings | None = None,
) -> AsyncIterator[Scraper]:
    scraper = Scraper(signals, limits or LimitSettings(), registry)
    scraper.update(members(*endpoints))
    try:
        yield scraper
    finally:
        await scraper.close()


def members(*endpoints: Endpoint) -> Membership:
    return Membership((Pool("p", endpoints),))


def endpoint(address: str, url: str = "") -> Endpoint:
    return Endpoint(address, "p", metrics_url=url or f"http://{address}/metrics")


@contextmanager
def closed_port() -> Iterator[str]:
    """An address that refuses: its port is held by a socket that does not listen, so nobody takes it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def page(_: web.Request) -> web.Response:
    return web.Response(body=PAGE)


async def test_every_endpoint_is_read() -> None:
    async with (
        serving(page) as one,
        serving(page) as two,
        scraping(endpoint(one), endpoint(two)) as scraper,
    ):
        assert loads_of(scraper.signals()) == {one: Load(), two: Load()}
        assert await scraper.first_sync(60)
        for load in loads_of(scraper.signals()).values():
            assert load.kv_capacity_tokens is not None
            assert load.kv_capacity_tokens.value == 46592
            assert load.reachable is not None
            assert load.reachable.value == 1


async def test_a_gzip_page_is_read() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=gzip.compress(PAGE), headers={"Content-Encoding": "gzip"})

    async with serving(handler) as address, scraping(endpoint(address)) as scraper:
        assert await scraper.first_sync(60)
        assert loads_of(scraper.signals())[address].queue_depth is not None


SLOTS = (Path(__file__).parent / "data" / "llama.cpp-slots.json").read_bytes()
LLAMA = (Path(__file__).parent / "data" / "llama.cpp-metrics.txt").read_bytes()


@asynccontextmanager
async def serving_llama(slots: Handler) -> AsyncIterator[str]:
    """A llama.cpp behind a path of a proxy."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=LLAMA)

    app = web.Application()
    app.router.add_get("/one/metrics", metrics)
    app.router.add_get("/one/slots", slots)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("kind", ["auto", "llama.cpp"])
async def test_llama_cpps_slots_are_read_beside_its_page(kind: str) -> None:
    async def slots(_: web.Request) -> web.Response:
        return web.Response(body=SLOTS)

    async with serving_llama(slots) as address:
        llama = replace(endpoint(address, f"http://{address}/one/metrics"), engine=kind)
        async with scraping(llama) as scraper:
            await until(lambda: loads_of(scraper.signals())[address].batch_limit is not None)
            assert loads_of(scraper.signals())[address].queue_depth is not None


async def test_refused_slots_are_not_fetched_again_at_once(caplog: pytest.LogCaptureFixture) -> None:
    requests = 0

    async def slots(_: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return web.Response(status=501)

    registry = CollectorRegistry()
    async with serving_llama(slots) as address:
        llama = replace(endpoint(address, f"http://{address}/one/metrics"), engine="llama.cpp")
        async with scraping(llama, registry=registry) as scraper:
            await until(lambda: (registry.get_sample_value("warmroute_scrapes_total") or 0) >= 4)
            load = loads_of(scraper.signals())[address]
    assert requests == 1
    assert load.queue_depth is not None
    assert load.memory_used_ratio is None
    assert len([record for record in caplog.records if "slots" in record.getMessage()]) == 1


async def test_slots_that_hang_cost_no_page() -> None:
    signals = FAST.model_copy(update={"scrape_timeout_seconds": 0.1})
    async with serving_llama(hanging) as address:
        llama = replace(endpoint(address, f"http://{address}/one/metrics"), engine="llama.cpp")
        async with scraping(llama, signals=signals) as scraper:
            assert await scraper.first_sync(60)
            await until(lambda: loads_of(scraper.signals())[address].queue_depth is not None)


async def not_found(_: web.Request) -> web.Response:
    return web.Response(status=404)


async def hanging(_: web.Request) -> web.Response:
    await asyncio.sleep(60)
    return web.Response()


async def half(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = 1000
    await response.prepare(request)
    await response.write(b"vllm:num_requests_waiting 5\n")
    assert request.transport is not None
    request.transport.close()
    return response


async def huge(_: web.Request) -> web.Response:
    return web.Response(body=b"# filler line of a page that does not end\n" * 120_000)


async def bomb(_: web.Request) -> web.Response:
    return web.Response(body=gzip.compress(bytes(20_000_000)), headers={"Content-Encoding": "gzip"})


async def not_gzip(_: web.Request) -> web.Response:
    return web.Response(body=b"plain", headers={"Content-Encoding": "gzip"})


async def redirect_loop(_: web.Request) -> web.Response:
    raise web.HTTPFound("/metrics")


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (not_found, "http_status"),
        (hanging, "timeout"),
        (half, "protocol"),
        (huge, "too_large"),
        (bomb, "too_large"),
        (not_gzip, "protocol"),
        (redirect_loop, "protocol"),
    ],
)
async def test_each_failure_has_its_kind(handler: Handler, kind: str) -> None:
    async with serving(handler) as address, PageFetcher(1_000_000) as fetcher:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(f"http://{address}/metrics", 0.05 if handler is hanging else 60.0)
        assert caught.value.kind == kind


@pytest.mark.parametrize("handler", [not_found, hanging, half, not_gzip])
async def test_a_page_that_fails_is_unknown_counted_and_logged_once(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    signals = FAST.model_copy(update={"scrape_timeout_seconds": 0.05} if handler is hanging else {})
    async with (
        serving(handler) as address,
        scraping(endpoint(address), signals=signals, registry=registry) as scraper,
    ):
        assert await scraper.first_sync(60)
        await until(lambda: (registry.get_sample_value("warmroute_scrapes_total") or 0) >= 4)
        assert loads_of(scraper.signals()) == {address: Load()}
        assert registry.get_sample_value("warmroute_scrape_failing_endpoints") == 1
    warnings = [record for record in caplog.records if record.name == scraper_module.__name__]
    assert len(warnings) == 1


async def test_five_megabytes_within_the_limit_are_read() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b"# filler\n" * 500_000 + PAGE)

    signals = SignalSettings(scrape_interval_seconds=5.0, scrape_timeout_seconds=60.0)
    limits = LimitSettings(metrics_page_bytes=8_388_608)
    async with (
        serving(handler) as address,
        scraping(endpoint(address), signals=signals, limits=limits) as scraper,
    ):
        assert await scraper.first_sync(60)
        assert loads_of(scraper.signals())[address].kv_capacity_tokens is not None


async def test_garbage_is_unknown_and_its_lines_are_counted() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=b"\x00\xff{{{\nvllm:num_requests_waiting{ 3\n" + bytes(range(256)))

    registry = CollectorRegistry()
    async with (
        serving(handler) as address,
        scraping(endpoint(address), registry=registry) as scraper,
    ):
        assert await scraper.first_sync(60)
        load = loads_of(scraper.signals())[address]
        assert load.queue_depth is None
        assert load.reachable is not None
        assert (registry.get_sample_value("warmroute_scrape_malformed_lines_total") or 0) >= 1


async def test_closed_port_is_unreachable_and_comes_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(page) as address:
        port = int(address.rpartition(":")[2])
        scraper = Scraper(FAST, LimitSettings())
        scraper.update(members(endpoint(address)))
        assert await scraper.first_sync(60)
    await until(lambda: reachable(scraper, address) == 0)
    capacity = loads_of(scraper.signals())[address].kv_capacity_tokens
    assert capacity is not None  # what was known stays, to age out
    async with serving(page, port):
        await until(lambda: reachable(scraper, address) == 1)
    await scraper.close()
    assert any("read again" in record.getMessage() for record in caplog.records)


def reachable(scraper: Scraper, address: str) -> float | None:
    signal = loads_of(scraper.signals())[address].reachable
    return None if signal is None else signal.value


async def test_silent_port_is_unreachable_while_a_peer_connects() -> None:
    async with serving(page) as other:
        async with serving(page) as address:
            scraper = Scraper(SOON, LimitSettings())
            scraper.update(members(endpoint(address), endpoint(other)))
            assert await scraper.first_sync(60)
        port = int(address.rpartition(":")[2])
        with contextlib.closing(Deaf(port).fill()):
            await until(lambda: reachable(scraper, address) == 0)
            assert reachable(scraper, other) == 1
        async with serving(page, port):
            await until(lambda: reachable(scraper, address) == 1)
        await scraper.close()


async def test_pool_without_any_connection_is_unknown() -> None:
    """It is this process that has no network; a pool of one engine is no exception."""
    with contextlib.closing(Deaf().fill()) as one, contextlib.closing(Deaf().fill()) as two:
        for addresses in ((one.address,), (one.address, two.address)):
            registry = CollectorRegistry()
            pool = [endpoint(address) for address in addresses]
            async with scraping(*pool, signals=SOON, registry=registry) as scraper:
                failed = "warmroute_scrape_failures_total", {"kind": "connect"}
                tries = 4 * len(addresses)
                await until(lambda failed=failed, tries=tries, registry=registry: (
                    registry.get_sample_value(*failed) or 0) >= tries)  # fmt: skip
                assert {reachable(scraper, address) for address in addresses} == {None}


@pytest.mark.parametrize(("status", "doubted"), [(503, True), (404, False)])
async def test_server_error_of_a_page_is_a_fault(status: int, *, doubted: bool) -> None:
    pages, suspected = 0, []

    async def handler(_: web.Request) -> web.Response:
        nonlocal pages
        pages += 1
        return web.Response(status=status)

    async with serving(handler) as address, scraping(endpoint(address)) as scraper:
        scraper.on_fault = lambda address, _: suspected.append(address)
        await until(lambda: pages >= 4)
    assert bool(suspected) is doubted


async def test_counters_that_fall_are_a_fault() -> None:
    totals, suspected = [5, 9, 2], []

    async def handler(_: web.Request) -> web.Response:
        total = totals.pop(0) if len(totals) > 1 else totals[0]
        return web.Response(text=f"vllm:num_requests_running 0\nvllm:generation_tokens_total {total}\n")

    async with serving(handler) as address:
        scraper = Scraper(FAST, LimitSettings())
        scraper.on_fault = lambda address, _: suspected.append(address)
        scraper.update(members(endpoint(address)))
        await until(lambda: len(totals) == 1 and bool(suspected))
        await scraper.close()
    assert suspected == [address]


async def test_closed_port_of_an_exporter_is_no_engines() -> None:
    registry = CollectorRegistry()
    with closed_port() as exporter:
        separate = endpoint("127.0.0.1:8000", f"http://{exporter}/metrics")
        async with scraping(separate, registry=registry) as scraper:
            assert await scraper.first_sync(60)
            assert loads_of(scraper.signals()) == {"127.0.0.1:8000": Load()}
    assert registry.get_sample_value("warmroute_scrape_failures_total", {"kind": "refused"})
    async with (
        serving(page) as answering,
        scraping(endpoint("127.0.0.1:8000", f"http://{answering}/metrics")) as scraper,
    ):
        assert await scraper.first_sync(60)
        assert reachable(scraper, "127.0.0.1:8000") is None


async def test_one_that_hangs_delays_nobody_else() -> None:
    scrapes = 0

    async def counting(_: web.Request) -> web.Response:
        nonlocal scrapes
        scrapes += 1
        return web.Response(body=PAGE)

    async with (
        serving(hanging) as stuck,
        serving(counting) as well,
        scraping(endpoint(stuck), endpoint(well)) as scraper,
    ):
        await until(lambda: scrapes >= 5)
        assert not await scraper.first_sync(0.01)  # the stuck one has not been tried to an end
        assert loads_of(scraper.signals())[well].queue_depth is not None


async def test_a_fault_of_ours_is_counted_and_ends_no_task(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        malformed_lines = 0
        second_page = ""
        ranks = ONE
        reads = 0

        def read(self, page: bytes, now: float, second: bytes | None = None) -> dict[str, float]:
            Broken.reads += 1
            raise KeyError("bug")

    registry = CollectorRegistry()
    scraper = Scraper(FAST, LimitSettings(), registry, make_reader=lambda *_: Broken())
    async with serving(page) as address:
        scraper.update(members(endpoint(address)))
        await until(lambda: Broken.reads >= 3)
        assert loads_of(scraper.signals()) == {address: Load()}
        await scraper.close()
    assert (registry.get_sample_value("warmroute_scrape_failures_total", {"kind": "internal"}) or 0) >= 3
    assert len([record for record in caplog.records if record.exc_info]) == 1


async def test_tasks_follow_the_membership() -> None:
    async with serving(page) as one, serving(page) as two, scraping(endpoint(one)) as scraper:
        assert await scraper.first_sync(60)
        scraper.update(members(endpoint(one), endpoint(two)))
        assert (
            loads_of(scraper.signals())[one].queue_depth is not None
        )  # the one that stays is not started again
        await until(lambda: loads_of(scraper.signals())[two].queue_depth is not None)
        scraper.update(members(endpoint(two)))
        assert set(loads_of(scraper.signals())) == {two}
        scraper.update(members(endpoint(two, f"http://{one}/metrics")))
        assert loads_of(scraper.signals()) == {two: Load()}  # another source: nothing of the old one is kept
        await until(lambda: loads_of(scraper.signals())[two].queue_depth is not None)
        await until(lambda: scrape_tasks() == 1)
    assert scrape_tasks() == 0


def scrape_tasks() -> int:
    return sum(task.get_name().startswith("scrape ") for task in asyncio.all_tasks())


async def test_other_settings_keep_the_loads() -> None:
    async with serving(page) as address, scraping(endpoint(address)) as scraper:
        assert await scraper.first_sync(60)
        scraper.reconfigure(FAST.model_copy(update={"latency_window_seconds": 60.0}))
        assert loads_of(scraper.signals())[address].queue_depth is not None
        assert await scraper.first_sync(60)


async def test_without_endpoints_the_first_sync_is_done() -> None:
    async with scraping() as scraper:
        assert await scraper.first_sync(60)


def test_phases_are_the_same_in_every_run_and_spread() -> None:
    phases = [phase(f"10.0.0.{i}:8000") for i in range(200)]
    assert phases == [phase(f"10.0.0.{i}:8000") for i in range(200)]
    tenths = [sum(int(value * 10) == tenth for value in phases) for tenth in range(10)]
    assert all(0 <= value < 1 for value in phases)
    assert min(tenths) >= 5
    assert phase("10.0.0.0:8000") == pytest.approx(0.10853805506878106)


async def test_ranks_count_until_a_page_fails() -> None:
    """A page that is merely late is no sign of another engine."""
    page = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 0\n' for rank in range(2))
    seconds, status = 0.0, 200

    async def handler(_: web.Request) -> web.Response:
        await asyncio.sleep(seconds)
        return web.Response(text=page, status=status)

    registry = CollectorRegistry()
    failures = "warmroute_scrape_failures_total"
    async with (
        serving(handler) as address,
        scraping(endpoint(address), signals=SOON, registry=registry) as scraper,
    ):
        await until(lambda: bool(scraper.ranks()))
        assert scraper.ranks()[address].count == 2
        seconds = 5.0
        await until(lambda: bool(registry.get_sample_value(failures, {"kind": "timeout"})))
        assert scraper.ranks()[address].count == 2
        seconds, status = 0.0, 503
        await until(lambda: not scraper.ranks())
