"""Endpoints that come, load, leave and are remembered: the services by their own commands, the real Envoy."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from fleet.names import TYPE_ENDPOINT
from tests.product.conftest import LIMIT_SECONDS, until
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import warmroute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

FAST = {
    "signals": {"scrape_interval_seconds": 0.2, "scrape_timeout_seconds": 0.2},
    "weights": {"stabiliser": {"smoothing_seconds": 0.3, "minimum_interval_seconds": 0.2}},
    "limits": {"drain_seconds": 0.5},
}
LONG, SHORT = 600.0, 0.5
"""Of a slow start and of a drain, in seconds: as long as a test looks at it, and when it has seen it."""


class Loading:
    """An engine of which the test decides whether its model answers; an answer takes a while."""

    def __init__(self) -> None:
        self.ready = False
        self.go_on = asyncio.Event()
        """What is asked before it is set is answered when it is."""
        self.go_on.set()
        self.probed = self.arrived = self.finished = 0
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        self.address = ""

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = "{}:{}".format(*self._runner.addresses[0])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.arrived += 1
        self.probed += request.path == "/v1/models"
        if not self.ready:
            return web.Response(status=503)
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "smol"}]})
        if request.method != "POST":
            return web.Response(status=404)
        await self.go_on.wait()
        self.finished += 1
        return web.json_response({})


class Sleeper:
    """An engine whose page tells whether it sleeps; all but model list and page fails there while it does."""

    def __init__(self) -> None:
        self.awake = True
        self.arrived = 0
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        self.address = ""

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.address = "{}:{}".format(*self._runner.addresses[0])

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path == "/metrics":
            state = f'vllm:engine_sleep_state{{sleep_state="awake"}} {int(self.awake)}\n'
            return web.Response(text=state + "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n")
        if "x-client" not in request.headers:  # A probe.
            return web.json_response({"data": [{"id": "smol"}]})
        self.arrived += 1
        await request.read()
        return web.json_response({}, status=200 if self.awake else 500)


class Fleet:
    """A deployment whose endpoints stand in a file."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession, envoy: EnvoyProcess) -> None:
        self.cluster, self.session, self.envoy = cluster, session, envoy
        self.file = cluster.directory / "endpoints.json"
        self.saved = cluster.directory / "xds.sock.last-good"
        self.statuses: Counter[int] = Counter()

    def joining(self, slow_start_seconds: float, drain_seconds: float) -> None:
        """Set how endpoints join and leave."""
        self.cluster.pool_overrides["joining"] = {
            "probe_interval_seconds": 0.1,
            "slow_start_seconds": slow_start_seconds,
            "drain_seconds": drain_seconds,
        }
        self.cluster.write_settings()

    def found(self, *addresses: str) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text(json.dumps([{"address": address} for address in addresses]))
        beside.replace(self.file)

    async def admin(self, path: str) -> Any:
        async with self.session.get(f"http://{self.cluster.admin_address}{path}") as response:
            return json.loads(await response.text())

    async def endpoints(self) -> dict[str, dict[str, Any]]:
        return {e["address"]: e for e in (await self.admin("/api/v1/endpoints"))["endpoints"]}

    async def state(self, address: str) -> str | None:
        return (await self.endpoints()).get(address, {}).get("state")

    async def health(self, address: str) -> str:
        """What Envoy was told of an endpoint's health."""
        hosts = (await self.envoy.clusters())["engines"]
        return str(hosts[address]["health_status"]["eds_health_status"]) if address in hosts else ""

    async def answered(self, more: int) -> None:
        """Return when so many more requests have been answered."""
        wanted = self.statuses.total() + more

        async def reached() -> bool:
            return self.statuses.total() >= wanted

        await until(reached)

    async def acked(self) -> str:
        """The version of EDS that Envoy has acknowledged."""
        for client in (await self.admin("/api/v1/clients"))["clients"]:
            for held in client["types"]:
                if held["type_url"] == TYPE_ENDPOINT:
                    return str(held["version_acked"])
        return ""

    async def load(self) -> None:
        """Forty requests a second that go by weights, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._ask())
                await asyncio.sleep(0.025)

    async def _ask(self) -> None:
        body = {"model": "smol", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello."}]}
        url = f"http://{self.cluster.address}/v1/chat/completions"
        async with self.session.post(
            url, data=json.dumps(body), headers={"content-type": "text/plain"}
        ) as response:
            await response.read()
            self.statuses[response.status] += 1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    """The last test leaves it in ruins."""
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    cluster = Cluster(ClusterSettings("serve", 2, EngineSettings(speed_up=50), FAST), directory)
    try:
        await cluster.start_engines()
        file = cluster.directory / "endpoints.json"
        cluster.pool_overrides = {"endpoints": [], "discovery": [{"file": {"path": str(file)}}]}
        file.write_text(json.dumps([{"address": address} for address in cluster.engines]))
        cluster.write_settings()
        bootstrap, _ = await asyncio.gather(cluster.bootstrap(), cluster.start_services())
        async with (
            EnvoyProcess(bootstrap, directory=directory) as envoy,
            aiohttp.ClientSession() as session,
        ):
            await cluster.wait_answer("envoy", cluster.address, "/v1/models")
            yield Fleet(cluster, session, envoy)
        await cluster.stop()
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)


async def test_engine_loads_joins_and_leaves_without_a_failure(fleet: Fleet) -> None:
    """No request before its model answers, few at first, none once it leaves, and none fails meanwhile."""
    late = Loading()
    await late.start()
    fleet.joining(LONG, LONG)
    load = asyncio.create_task(fleet.load())
    try:
        fleet.found(*fleet.cluster.engines, late.address)
        await until(lambda: _is_in(fleet, late, "probing"))
        await _probed(late, 5)
        await fleet.answered(20)
        assert await fleet.state(late.address) == "probing"
        assert late.arrived == 0
        late.ready = True
        await _joins_slowly(fleet, late)
        await _leaves(fleet, late)
    finally:
        late.go_on.set()
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        await late.stop()
    assert set(fleet.statuses) == {200}


async def _is_in(fleet: Fleet, late: Loading | Sleeper, state: str | None) -> bool:
    return await fleet.state(late.address) == state


async def _probed(late: Loading, more: int) -> None:
    wanted = late.probed + more
    async with asyncio.timeout(LIMIT_SECONDS):
        while late.probed < wanted:
            await asyncio.sleep(0.05)


async def _joins_slowly(fleet: Fleet, late: Loading) -> None:
    others = fleet.cluster.engines

    async def weighed() -> bool:
        entry = (await fleet.endpoints())[late.address]
        return entry["state"] == "ramp" and entry["weight"] is not None

    await until(weighed)
    first = await fleet.endpoints()
    assert first[late.address]["weight"] < min(first[address]["weight"] for address in others) / 2
    assert first[late.address]["source"] == f"file {fleet.file}"
    fleet.joining(SHORT, LONG)
    await until(lambda: _is_in(fleet, late, "admitted"))

    async def full() -> bool:
        weights = {address: entry["weight"] for address, entry in (await fleet.endpoints()).items()}
        return bool(weights[late.address] > min(weights[address] for address in others) / 2)

    await until(full)
    before = late.arrived

    async def asked() -> bool:
        return late.arrived > before + 5

    await until(asked)


async def _leaves(fleet: Fleet, late: Loading) -> None:
    """What it has begun it ends, and nothing new comes from the moment on at which Envoy knows."""
    late.go_on.clear()

    async def busy() -> bool:
        return late.arrived > late.finished

    await until(busy)
    fleet.found(*fleet.cluster.engines)
    await until(lambda: _is_in(fleet, late, "leaving"))

    async def told() -> bool:
        return await fleet.health(late.address) == "DRAINING"

    await until(told)
    await fleet.answered(10)  # its worker hears a moment later
    arrived = late.arrived
    assert late.finished < arrived
    late.go_on.set()
    await fleet.answered(40)
    assert await _is_in(fleet, late, "leaving")
    fleet.joining(SHORT, SHORT)
    await until(lambda: _is_in(fleet, late, None))
    await fleet.answered(10)
    assert late.finished == late.arrived == arrived


async def test_sleeping_engine_gets_nothing_until_awake(fleet: Fleet) -> None:
    """By weights, by picks, by GET and in pieces; not even what is warm there."""
    engine = Sleeper()
    await engine.start()
    fleet.joining(SHORT, SHORT)
    fleet.found(*fleet.cluster.engines, engine.address)
    url = f"http://{fleet.cluster.address}"
    prompts = [f"{number} " + "word " * 800 for number in range(6)]
    client = {"x-client": "yes"}

    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"model": "smol", "max_tokens": 1, "prompt": "Hello."}'

    async def each_way(number: int) -> None:
        body = {"model": "smol", "max_tokens": 1, "prompt": prompts[number % len(prompts)]}
        json_headers = {**client, "content-type": "application/json"}
        asked = (
            fleet.session.post(f"{url}/v1/completions", data=json.dumps(body), headers=json_headers),
            fleet.session.post(f"{url}/v1/completions", data=pieces(), headers=json_headers),
            fleet.session.get(f"{url}/v1/models", headers=client),
        )
        for each in asked:
            async with each as response:
                await response.read()
                assert response.status == 200

    async def serves() -> bool:
        await each_way(engine.arrived)
        return engine.arrived > 5

    async def told() -> bool:
        return await fleet.state(engine.address) == "asleep" and await fleet.health(engine.address) in (
            "DRAINING",
            "",
        )

    try:
        await until(serves)
        engine.awake = False
        await until(told)
        away = 0

        async def stays_away() -> bool:
            """Envoy's other threads and ext_proc hear a moment later."""
            nonlocal away
            before = engine.arrived
            await each_way(away)
            away = away + 1 if engine.arrived == before else 0
            return away >= 20

        await until(stays_away)
        engine.arrived = 0
        for number in range(60):
            await each_way(number)
        assert engine.arrived == 0
        engine.awake = True
        await until(serves)
        assert await fleet.state(engine.address) in ("admitted", "ramp")
    finally:
        fleet.found(*fleet.cluster.engines)
        await until(lambda: _is_in(fleet, engine, None))
        await engine.stop()


async def test_last_good_state_serves_without_discovery_and_engines(fleet: Fleet) -> None:
    """All is gone but the state on disk; the version is the same, so Envoy hears of nothing new."""
    cluster = fleet.cluster

    async def saved() -> bool:
        if not fleet.saved.exists():
            return False
        pools = json.loads(fleet.saved.read_bytes().partition(b"\n")[2])["pools"]
        held = {e["endpoint"]["address"]: e["weight"] for pool in pools for e in pool["endpoints"]}
        return held == {address: entry["weight"] for address, entry in (await fleet.endpoints()).items()}

    await until(saved)
    version = await fleet.acked()
    assert version
    child = cluster.children["serve"]
    child.signal(signal.SIGKILL)
    await child.wait_for_end(LIMIT_SECONDS)
    for name in [name for name in cluster.children if name.startswith("engine")]:
        cluster.children[name].kill()
    fleet.file.write_text("[{")
    cluster.start("serve", warmroute("serve", str(cluster.settings_path)))
    await cluster.wait_answer("serve", cluster.admin_address, "/readyz", LIMIT_SECONDS)

    async def back() -> bool:
        return bool(await fleet.acked())

    await until(back)
    assert await fleet.acked() == version
    assert {e["source"] for e in (await fleet.endpoints()).values()} == {"last good"}
    assert (await fleet.admin("/api/v1/status"))["serving_last_good"] == ["engines"]
    await asyncio.sleep(1.0)
    assert await fleet.acked() == version
    fleet.found(cluster.engines[0])

    async def live() -> bool:
        return (await fleet.endpoints()).keys() == {cluster.engines[0]}

    await until(live)
