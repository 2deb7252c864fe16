"""Pages that are not at `/metrics` of the engine's port, names that no engine has, and keys."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from fleet.errors import SettingsError
from fleet.settings import JoiningSettings, SignalSettings, parse_settings
from fleet.settings.membership import membership
from testing.signals import loads_of
from xds_server.endpoints.engine_client import EngineClient
from xds_server.endpoints.factory import SourceFactory
from xds_server.endpoints.gate import ProbeResult
from xds_server.endpoints.probe import Prober
from xds_server.endpoints.source import SourceMetrics
from xds_server.http1 import keys
from xds_server.http1.keys import KeyFiles
from xds_server.signals.scrape.engines import ENGINES, reader_of
from xds_server.signals.scrape.places import takes_key, usual_places
from xds_server.signals.scrape.scraper import Scraper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fleet.endpoint import Endpoint
    from fleet.settings import Settings

DATA = Path(__file__).parent / "data"
TRT = (DATA / "tensorrt-llm-metrics.txt").read_bytes()
FAST = SignalSettings(scrape_interval_seconds=0.02, scrape_timeout_seconds=60.0)


def settings(pool: str, address: str = "10.0.0.1:8000") -> Settings:
    entry = f"{{name: p, endpoints: [{{address: '{address}'}}], {pool}}}"
    rest = "listeners: [{name: l, address: '127.0.0.1:1', pool: p}]\nxds: {address: 'unix:/x'}\n"
    return parse_settings(f"pools: [{entry}]\n{rest}")


def endpoint(pool: str, address: str = "10.0.0.1:8000") -> Endpoint:
    return membership(settings(pool, address)).endpoints[0]


@contextlib.asynccontextmanager
async def serving(pages: dict[str, bytes], requests: list[Any] | None = None) -> AsyncIterator[str]:
    """A server with some pages and an empty list at all other paths, as `trtllm-serve` has."""

    async def answer(request: web.BaseRequest) -> web.Response:
        if requests is not None:
            requests.append((request.path, request.headers.get("Authorization")))
        return web.Response(body=pages.get(request.path, b"[]"))

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield "{}:{}".format(*runner.addresses[0])
    await runner.cleanup()


async def queue_of(scraper: Scraper, address: str) -> float:
    async with asyncio.timeout(60):
        while (queue := loads_of(scraper.signals())[address].queue_depth) is None:
            await asyncio.sleep(0.01)
    return float(queue.value)


@pytest.mark.parametrize(
    ("pool", "url"),
    [
        ("models: []", "http://10.0.0.1:8000/metrics"),
        ("metrics: {port: 8002}", "http://10.0.0.1:8002/metrics"),
        ("metrics: {path: /x}", "http://10.0.0.1:8000/x"),
        ("metrics: {scheme: https, path: /x}", "https://10.0.0.1:8000/x"),
        ("metrics: {port: 9, path: /x}, tls: {ca_file: /a, sni: b.c}", "http://10.0.0.1:9/x"),
        ("metrics: {path: /x}, tls: {ca_file: /a, sni: b.c}", "https://10.0.0.1:8000/x"),
    ],
)
def test_place_of_a_pools_pages(pool: str, url: str) -> None:
    assert endpoint(pool).metrics_url == url


async def test_sources_place_precedes_the_pools(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("[{address: '10.0.0.2:8000'}]")
    source = f"{{file: {{path: {tmp_path}/list.yaml}}, metrics: {{port: 9, path: /y}}}}"
    (pool,) = settings(f"metrics: {{port: 8}}, discovery: [{source}]").pools
    made = SourceFactory()(pool, pool.discovery[0], SourceMetrics(CollectorRegistry()))
    endpoints: list[Endpoint] = []
    running = asyncio.create_task(made.source.run(endpoints.extend))
    async with asyncio.timeout(60):
        while not endpoints:
            await asyncio.sleep(0.01)
    running.cancel()
    assert [each.metrics_url for each in endpoints] == ["http://10.0.0.2:9/y"]
    assert membership(settings("metrics: {port: 8}")).endpoints[0].metrics_url.endswith(":8/metrics")


async def test_probe_sends_the_pools_key(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-secret\n")
    requests: list[Any] = []
    async with serving({"/v1/models": b'{"data": [{"id": "m"}]}'}, requests) as address:
        results: list[ProbeResult] = []
        prober = Prober(lambda _, result: bool(results.append(result)), EngineClient())
        each = endpoint(f"models: [m], api_key_file: {tmp_path}/key", address)
        prober.update({address: (each, JoiningSettings())})
        async with asyncio.timeout(60):
            while not results:
                await asyncio.sleep(0.01)
        await prober.close()
    assert results == [ProbeResult.READY]
    assert set(requests) == {("/v1/models", "Bearer sk-secret"), ("/health", "Bearer sk-secret")}


def test_usual_places_are_tried_where_none_is_set() -> None:
    places = [url for url, _ in usual_places(endpoint("models: []"), ENGINES)]
    at = "http://10.0.0.1"
    assert {f"{at}:8000/prometheus/metrics", f"{at}:8000/v1/metrics", f"{at}:8002/metrics"} <= set(places)
    assert not usual_places(endpoint("metrics: {path: /x}"), ENGINES)
    shared = usual_places(endpoint("models: []"), ENGINES, shares_host=True)
    assert all(url.startswith(f"{at}:8000/") for url, _ in shared), "a port may be that of another engine"


@pytest.mark.parametrize("kind", ["auto", "tensorrt-llm"])
async def test_page_is_read_where_its_kind_has_it(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Once: the place stays, and moves back with another engine at the address."""
    caplog.set_level(logging.INFO)
    pages = {"/prometheus/metrics": TRT}
    async with serving(pages) as address:
        scraper = Scraper(FAST, settings("models: []").limits)
        scraper.update(membership(settings(f"engine: {kind}", address)))
        assert await queue_of(scraper, address) == 7
        assert "its metrics page is at" in caplog.text
        if kind == "auto":
            pages.clear()
            pages["/metrics"] = (DATA / "nim-metrics.txt").read_bytes()
            while await queue_of(scraper, address) != 60:
                await asyncio.sleep(0.01)
        await scraper.close()


async def test_pools_key_goes_to_its_engines_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "key").write_text("sk-secret\n")
    requests: list[Any] = []
    page = (DATA / "nim-metrics.txt").read_bytes()
    async with serving({"/metrics": page}, requests) as address:
        scraper = Scraper(FAST, settings("models: []").limits)
        scraper.update(membership(settings(f"api_key_file: {tmp_path}/key", address)))
        await queue_of(scraper, address)
        scraper.update(
            membership(
                parse_settings(
                    f"pools: [{{name: p, api_key_file: {tmp_path}/key, endpoints: [{{address: '127.0.0.2:1',"
                    f" metrics_url: 'http://{address}/other'}}]}}]\n"
                    "listeners: [{name: l, address: '127.0.0.1:1', pool: p}]\n"
                )
            )
        )
        async with asyncio.timeout(60):
            while requests[-1][0] != "/other":
                await asyncio.sleep(0.01)
        await scraper.close()
    assert set(requests) == {("/metrics", "Bearer sk-secret"), ("/other", None)}
    assert "sk-secret" not in caplog.text


async def test_key_files_are_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    files, path = KeyFiles(lambda: now[0]), tmp_path / "key"
    assert await files.key("") == ""
    assert await files.key(str(path)) == ""
    path.write_text("one\n")
    assert await files.key(str(path)) == "", "not before its time"
    now[0] += keys.LOOK_SECONDS
    assert await files.key(str(path)) == "one"
    path.write_bytes(b"two\r\nX-Admin: 1")
    now[0] += keys.LOOK_SECONDS
    assert await files.key(str(path)) == "", "it would end the header"
    assert len(caplog.records) == 2
    assert "X-Admin" not in caplog.text


def test_keys_stay_at_ports_that_the_settings_name() -> None:
    own, paged = endpoint("models: []"), endpoint("metrics: {port: 8002}")
    assert takes_key(own, "http://10.0.0.1:8000/v1/metrics")
    assert not takes_key(own, "http://10.0.0.1:8002/metrics")
    assert takes_key(paged, "http://10.0.0.1:8002/metrics")
    assert not takes_key(paged, "http://10.0.0.2:8002/metrics")
    assert not takes_key(paged, "http://user:word@10.0.0.1:8002/metrics")


async def test_first_requests_wait_for_their_key(tmp_path: Path) -> None:
    """Otherwise all but one of a pool's engines would refuse their first probe."""
    files, path = KeyFiles(), tmp_path / "key"
    path.write_text("one")
    first = asyncio.create_task(files.key(str(path)))
    second = asyncio.create_task(files.key(str(path)))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == "one"


NAMES = """metric_names: {queue_depth: 'my_requests{state="waiting"}',
 running: 'my_requests{state="running"}', memory_used_ratio: cache,
 prompt_tokens_total: in_total, generation_tokens_total: out_total,
 requests_total: done, first_token_seconds: ttft}"""
PAGE = """my_requests{state="waiting"} 3
my_requests{state="running"} 2
cache 0.5
in_total %d
out_total %d
done %d
ttft_bucket{le="0.1"} 10
ttft_bucket{le="+Inf"} 10
ttft_sum 1
ttft_count 10
"""


def test_names_of_the_settings_are_read() -> None:
    reader = reader_of("auto", "a:1", FAST, endpoint(NAMES).metric_names)
    reader.read((PAGE % (100, 10, 1)).encode(), 0.0)
    numbers = dict(reader.read((PAGE % (300, 30, 2)).encode(), 2.0))
    assert numbers == {
        "queue_depth": 3,
        "running": 2,
        "memory_used_ratio": 0.5,
        "prompt_tokens_per_second": 100,
        "prompt_tokens_mean": 200,
        "generation_tokens_per_second": 10,
        "generation_tokens_mean": 20,
        "first_tokens_total": 10,
        "first_token_seconds_total": 1,
        "progress_total": 300 + 30 + 2 + 10,
    }


def test_names_of_the_settings_precede_those_of_the_kind() -> None:
    names = endpoint("metric_names: {queue_depth: my_queue}").metric_names
    reader = reader_of("auto", "a:1", FAST, names)
    assert reader.read(TRT + b"\nmy_queue 99\n", 0.0)["queue_depth"] == 99
    assert reader.read(TRT, 1.0)["queue_depth"] == 7


@pytest.mark.parametrize("name", ["a b", "a{b}", 'a{b="c"', "1a", 'a{b="\\\\"}'])
def test_name_that_no_sample_has_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="metric_names"):
        settings(f"metric_names: {{running: '{name}'}}")


def test_name_of_a_histogram_has_no_suffix() -> None:
    with pytest.raises(SettingsError, match="without _sum: ttft"):
        settings("metric_names: {first_token_seconds: ttft_sum}")
