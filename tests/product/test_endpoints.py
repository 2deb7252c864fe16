"""Endpoints that come, load, leave and are remembered: the services by their own commands, the real Envoy."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web

from bench.cluster import Cluster, ClusterSettings, EngineSettings
from bench.envoy import EnvoyProcess
from bench.processes import warmroute
from fleet.names import TYPE_ENDPOINT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

FAST = {
    "signals": {"scrape_interval_seconds": 0.2, "scrape_timeout_seconds": 0.2},
    "weights": {"stabiliser": {"smoothing_seconds": 0.3, "minimum_interval_seconds": 0.2}},
    "limits": {"drain_seconds": 0.5},
}
SLOW_START_SECONDS, DRAIN_SECONDS = 3.0, 3.0
LEAVING_SHOWS_SECONDS = 1.0
"""From the file to Envoy: a watch, a tick, a push."""


class Loading:
    """An engine of which the test decides whether its model answers; an answer takes a while."""

    def __init__(self) -> None:
        self.ready = False
        self.arrived: list[float] = []
        self.finished = 0
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
            self.arrived.append(time.monotonic())
        if not self.ready:
            return web.Response(status=503)
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "smol"}]})
        if request.method != "POST":
            return web.Response(status=404)
        await asyncio.sleep(0.8)
        self.finished += 1
        return web.json_response({})


class Fleet:
    """A deployment whose endpoints stand in a file."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self.cluster, self.session = cluster, session
        self.file = cluster.directory / "endpoints.json"
        self.saved = cluster.directory / "xds.sock.last-good"
        self.statuses: Counter[int] = Counter()

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


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    directory = Path(tempfile.mkdtemp(prefix="warmroute-"))
    cluster = Cluster(ClusterSettings("serve", 2, EngineSettings(speed_up=50), FAST), directory)
    try:
        await cluster.start_engines()
        async with aiohttp.ClientSession() as session:
            made = Fleet(cluster, session)
            joining = {
                "probe_interval_seconds": 0.1,
                "slow_start_seconds": SLOW_START_SECONDS,
                "drain_seconds": DRAIN_SECONDS,
            }
            cluster.pool_overrides = {
                "endpoints": [],
                "discovery": [{"file": {"path": str(made.file)}}],
                "joining": joining,
            }
            made.found(*cluster.engines)
            cluster.write_settings()
            await cluster.start_services()
            async with EnvoyProcess(await cluster.bootstrap(), directory=directory):
                await cluster.wait_answer("envoy", cluster.address, "/v1/models")
                yield made
            await cluster.stop()
    finally:
        cluster.kill()
        shutil.rmtree(directory, ignore_errors=True)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


async def test_an_engine_loads_joins_slowly_and_leaves_without_a_failed_request(fleet: Fleet) -> None:
    """No request before its model answers, few at first, none once it leaves, and none fails meanwhile."""
    late = Loading()
    await late.start()
    load = asyncio.create_task(fleet.load())

    async def is_in(state: str | None) -> bool:
        return await fleet.state(late.address) == state

    try:
        fleet.found(*fleet.cluster.engines, late.address)
        await until(lambda: is_in("probing"))
        await asyncio.sleep(1.0)
        assert await fleet.state(late.address) == "probing"
        assert late.arrived == []

        late.ready = True

        async def weighed() -> bool:
            entry = (await fleet.endpoints())[late.address]
            return entry["state"] == "ramp" and entry["weight"] is not None

        await until(weighed)
        first = await fleet.endpoints()
        others = min(first[address]["weight"] for address in fleet.cluster.engines)
        assert first[late.address]["weight"] < others / 2
        assert first[late.address]["source"] == f"file {fleet.file}"
        await until(lambda: is_in("admitted"))

        async def full() -> bool:
            weights = {address: entry["weight"] for address, entry in (await fleet.endpoints()).items()}
            return weights[late.address] > min(weights[a] for a in fleet.cluster.engines) / 2

        await until(full)
        arrived = len(late.arrived)
        await asyncio.sleep(1.0)
        assert len(late.arrived) > arrived + 5

        fleet.found(*fleet.cluster.engines)
        await until(lambda: is_in("leaving"))
        left_at = time.monotonic()
        assert len(late.arrived) > late.finished, "nothing is in flight, so nothing is drained"
        await until(lambda: is_in(None))
        assert max(late.arrived) < left_at + LEAVING_SHOWS_SECONDS
        assert time.monotonic() > left_at + LEAVING_SHOWS_SECONDS, "too short a drain to see anything"
        assert late.finished == len(late.arrived)
    finally:
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        await late.stop()
    assert set(fleet.statuses) == {200}


async def test_without_discovery_and_engines_envoy_is_told_what_it_was_told_last(fleet: Fleet) -> None:
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
    await child.wait_for_end()
    for name in [name for name in cluster.children if name.startswith("engine")]:
        cluster.children[name].kill()
    fleet.file.write_text("[{")
    cluster.start("serve", warmroute("serve", str(cluster.settings_path)))
    await cluster.wait_answer("serve", cluster.admin_address, "/readyz")

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
