"""Requests that fail at each engine, answers that are none, pages at other places, engines behind a name."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from fleet.names import HEADER_ATTEMPTS, HEADER_REASON
from testing.name_server import NameServer
from tests.envoy.site import site
from warmroute.simulator.workload import words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import aiohttp

    from tests.envoy.site import Site

BAD = "a request that no engine can serve"
ERROR_EVENT = b'data: {"error": {"message": "out of memory", "code": 500}}\n\ndata: [DONE]\n\n'
VLLM = """vllm:num_requests_running {running}
vllm:num_requests_waiting 0
vllm:kv_cache_usage_perc 0.1
vllm:prompt_tokens_total {tokens}
"""
NIM = "num_requests_running 7\nnum_requests_waiting 60\ngpu_cache_usage_perc 0.97\nprompt_tokens_total 1\n"
RAY = "ray_vllm_num_requests_running 7\nray_vllm_num_requests_waiting 5\nray_vllm_kv_cache_usage_perc 0.83\n"
TENSORRT_LLM = """trtllm_kv_cache_utilization 0.25
trtllm_num_requests_waiting 3
trtllm_num_requests_running 2
trtllm_request_success_total{{finished_reason="stop"}} 10
"""
TEI = "te_queue_size 5\nte_request_count 9\n"


class Engine:
    """It serves what it can in 50 ms; `hollow`: its answers are errors with status 200, and quick."""

    def __init__(self, *, page: str = VLLM, path: str = "/metrics", hollow: bool = False) -> None:
        self.served = self.failed = self.running = 0
        self.hollow, self.page, self.path = hollow, page, path
        self.address = ""

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.path == self.path:
            return web.Response(text=self.page.format(running=self.running, tokens=self.served))
        if request.method == "GET":
            return web.json_response([])
        if BAD.encode() in body:
            self.failed += 1
            return web.json_response({}, status=500)
        if self.hollow:
            self.failed += 1
            return web.Response(body=ERROR_EVENT, content_type="text/event-stream")
        self.running += 1
        await asyncio.sleep(0.05)
        self.running -= 1
        self.served += 1
        return web.json_response({})


@contextlib.asynccontextmanager
async def engines_of(*engines: Engine) -> AsyncIterator[list[str]]:
    async with contextlib.AsyncExitStack() as stack:
        for engine in engines:
            runner = web.ServerRunner(web.Server(engine.answer), shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            engine.address = "{}:{}".format(*runner.addresses[0])
        yield [engine.address for engine in engines]


async def post(world: Site, text: str) -> aiohttp.ClientResponse:
    messages = [{"role": "user", "content": text}]
    url = f"http://{world.addresses['chat']}/v1/chat/completions"
    async with world.client.post(url, json={"messages": messages}) as response:
        await response.read()
        return response


async def ask(world: Site, text: str) -> int:
    return (await post(world, text)).status


def gauge(world: Site, name: str) -> float | None:
    return world.registry.get_sample_value(name)


async def test_request_that_fails_everywhere_costs_no_trust(tmp_path: Path) -> None:
    """A client repeats it all the time, while others are served well."""
    random, engines = Random(3), [Engine() for _ in range(3)]
    async with engines_of(*engines) as addresses, site(tmp_path, {"chat": ("http1", addresses)}) as world:
        statuses: Counter[int] = Counter()
        for number in range(60):
            statuses[await ask(world, BAD + words(random, 300) if number % 10 == 0 else BAD)] += 1
            if number % 3 == 0:
                statuses[await ask(world, words(random, 300))] += 1
        assert statuses == {500: 60, 200: 20}
        assert all(engine.failed for engine in engines), "the request goes elsewhere after each failure"
        assert gauge(world, "warmroute_distrusted_endpoints") == 0
        events = world.registry.get_sample_value("warmroute_endpoint_events_total", {"event": "distrusted"})
        assert events == 0


async def test_errors_with_status_200_draw_no_more_than_a_share(tmp_path: Path) -> None:
    random = Random(4)
    engines = [Engine(hollow=True), *(Engine() for _ in range(3))]
    async with engines_of(*engines) as addresses, site(tmp_path, {"chat": ("http1", addresses)}) as world:

        async def client(count: int) -> None:
            for _ in range(count):
                assert await ask(world, words(random, 200)) == 200

        rounds = 0
        while not gauge(world, "warmroute_unproductive_endpoints"):
            await asyncio.gather(*(client(8) for _ in range(8)))
            rounds += 1
            assert rounds < 60, "it is not noticed"
        total = sum(engine.failed + engine.served for engine in engines)
        assert engines[0].failed <= 1.3 * total / len(engines), [each.served for each in engines]


@pytest.mark.parametrize(
    ("page", "path", "shown"),
    [
        (NIM, "/metrics", {"queue_depth": 60, "memory_used_ratio": 0.97, "running": 7}),
        (NIM, "/v1/metrics", {"queue_depth": 60, "memory_used_ratio": 0.97, "running": 7}),
        (RAY, "/metrics", {"queue_depth": 5, "memory_used_ratio": 0.83, "running": 7}),
        (TEI, "/metrics", {"queue_depth": 5}),
        ("trtllm_num_requests_waiting 3\n", "/prometheus/metrics", {"queue_depth": 3}),
    ],
    ids=["nim", "nim elsewhere", "ray", "tei", "tensorrt-llm"],
)
async def test_pages_by_other_names_and_places_are_read(
    page: str, path: str, shown: dict[str, float], tmp_path: Path
) -> None:
    engine = Engine(page=page, path=path)
    async with engines_of(engine) as addresses, site(tmp_path, {"chat": ("http1", addresses)}) as world:
        await until_shown(world, shown)
        assert gauge(world, "warmroute_blind_pools") == 0


async def until_shown(world: Site, shown: dict[str, float]) -> None:
    """Return once the load of the only endpoint has these values."""
    async with asyncio.timeout(60):
        while not any(shown.items() <= entry["load"].items() for entry in endpoints(world)):
            await asyncio.sleep(0.05)


def endpoints(world: Site) -> list[dict[str, Any]]:
    return list(world.server.views()["/api/v1/endpoints"]()["endpoints"])


@contextlib.asynccontextmanager
async def behind_a_name(
    directory: Path, serving: Engine, records: dict[str, str], **of_pool: Any
) -> AsyncIterator[Site]:
    """An engine that a name server knows by these records."""
    async with NameServer() as names, engines_of(serving) as (address,):
        names.answers = {("engines.test.", kind): [value] for kind, value in records.items()}
        family = of_pool.pop("family", "v4_preferred")
        name = {"name": "engines.test", "port": int(address.partition(":")[2]), "family": family}
        source = {"dns": {**name, "nameservers": [names.address]}, **of_pool.pop("source", {})}
        async with site(directory, {"chat": ("http1", [])}, discovery=[source], **of_pool) as world:
            yield world


@pytest.mark.parametrize(
    ("path", "of_pool"),
    [
        ("/prometheus/metrics", {"engine": "tensorrt-llm"}),
        ("/elsewhere", {"metrics": {"path": "/elsewhere"}}),
        ("/elsewhere", {"source": {"metrics": {"path": "/elsewhere"}}}),
    ],
    ids=["usual place", "pool", "source"],
)
async def test_pages_of_engines_by_dns(path: str, of_pool: dict[str, Any], tmp_path: Path) -> None:
    """No endpoint is in the settings, so pool or source give the place of its page."""
    engine = Engine(page=TENSORRT_LLM, path=path)
    async with behind_a_name(tmp_path, engine, {"A": "127.0.0.1"}, **of_pool) as world:
        await until_shown(world, {"queue_depth": 3, "memory_used_ratio": 0.25, "running": 2})
        assert gauge(world, "warmroute_blind_pools") == 0
        prompt = words(Random(6), 400)
        async with asyncio.timeout(60):
            while (await post(world, prompt)).headers.get(HEADER_REASON) != "warm":
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("family", ["v4_preferred", "all"])
async def test_a_family_that_leads_nowhere_gets_no_request(family: str, tmp_path: Path) -> None:
    """By default the name is one endpoint; with both families only the address that answers is admitted."""
    engine = Engine()
    records = {"A": "127.0.0.1", "AAAA": "2001:db8::1"}
    async with behind_a_name(tmp_path, engine, records, family=family, joining={}) as world:
        async with asyncio.timeout(60):
            while await ask(world, "first") != 200:
                await asyncio.sleep(0.05)
        assert len(endpoints(world)) == (2 if family == "all" else 1)
        answers = [await post(world, f"number {number}") for number in range(40)]
        assert {(each.status, each.headers[HEADER_ATTEMPTS]) for each in answers} == {(200, "1")}
