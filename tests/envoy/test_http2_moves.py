"""The loop closed: engines that speak HTTP/2 badly are found by the access log, moved, and tried again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from bench.certificates import Authority
from bench.envoy import EnvoyProcess
from fleet.settings import parse_settings
from fleet.store import FleetStore
from tests.envoy.conftest import eventually, free_address
from tests.envoy.two_tongues import TwoTongues
from xds_server.app import XdsServer
from xds_server.snapshot.bootstrap import bootstrap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Site:
    """Envoy, the real xds_server, and pools of which each has a listener by its name."""

    def __init__(self, addresses: dict[str, str], server: XdsServer, client: aiohttp.ClientSession) -> None:
        self._addresses, self.server, self._client = addresses, server, client
        self.statuses: list[int] = []

    async def over(self, pool: str) -> str:
        """Ask once; return the protocol by which the engine was asked, or the status of a failure."""
        url = f"http://{self._addresses[pool]}/v1/chat/completions"
        async with self._client.post(url, json={}) as response:
            self.statuses.append(response.status)
            text = await response.text()
        return str(json.loads(text)["over"]) if response.status == 200 else str(response.status)

    async def reaches(self, pool: str, protocol: str) -> None:
        """Ask until it is so."""

        async def reached() -> bool:
            return await self.over(pool) == protocol

        await eventually(reached, f"{pool} over {protocol}")

    def bad(self) -> dict[str, Any]:
        shown: dict[str, Any] = self.server.views()["/api/v1/http2"]()
        return shown


@contextlib.asynccontextmanager
async def site(
    directory: Path, pools: dict[str, tuple[str, list[TwoTongues]]], **of_pools: Any
) -> AsyncIterator[Site]:
    addresses = {name: free_address() for name in pools}
    written = {
        "pools": [
            {
                "name": name,
                "protocol": protocol,
                "endpoints": [{"address": engine.address} for engine in engines],
                "joining": {"probe": "none"},
                **of_pools,
            }
            for name, (protocol, engines) in pools.items()
        ],
        "listeners": [
            {"name": name, "address": address, "pool": name} for name, address in addresses.items()
        ],
        "xds": {"address": f"unix:{directory}/xds.sock", "state_path": "", "tick_seconds": 0.05},
        "ext_proc": {"address": f"unix:{directory}/ext_proc.sock"},
        "control": {"address": f"unix:{directory}/control.sock"},
        "admin": {"address": "", "ext_proc_address": ""},
        "signals": {"scrape_interval_seconds": 0.5, "scrape_timeout_seconds": 0.5},
        "limits": {"drain_seconds": 0.1},
        "upgrades": {"http2": {"pause_seconds": 0.4, "probe_timeout_seconds": 1.0}},
    }
    settings = parse_settings(json.dumps(written))
    server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    boot = bootstrap(ads_address=settings.xds.address, node_id="test", node_cluster="tests")
    await server.start()
    try:
        async with EnvoyProcess(boot) as envoy, aiohttp.ClientSession() as client:
            await envoy.wait_ready(listeners=len(pools))
            yield Site(addresses, server, client)
    finally:
        await server.stop()


async def test_engines_are_moved_and_come_back(tmp_path: Path) -> None:
    """Each way of speaking badly, in a pool of its own; the others are not touched."""
    async with contextlib.AsyncExitStack() as stack:

        async def engine(manner: Any = "good") -> TwoTongues:
            return await stack.enter_async_context(TwoTongues(manner))

        turning, looping = await engine(), await engine()
        pools = {
            "turning": ("h2", [turning]),
            "looping": ("h2", [looping]),
            "steady": ("h2", [await engine()]),
            "auto": ("auto", [await engine(), await engine()]),
            "mixed": ("auto", [await engine(), await engine("none")]),
        }
        held = await stack.enter_async_context(site(tmp_path, pools))
        for pool in ("turning", "looping", "steady"):
            assert await held.over(pool) == "HTTP/2"
        await held.reaches("auto", "HTTP/2")
        assert {await held.over("mixed") for _ in range(12)} == {"HTTP/1.1"}
        assert set(held.statuses) == {200}, "nobody is tried with a client's request"

        turning.manner, turning.well_for_probes = "garbage", True
        looping.manner = "goaway"
        await asyncio.gather(held.reaches("turning", "HTTP/1.1"), held.reaches("looping", "HTTP/1.1"))
        failed = [status for status in held.statuses if status != 200]
        assert set(failed) <= {502, 503}
        assert "looping" in held.bad()["moved"]

        held.statuses.clear()
        turning.manner = "good"
        await held.reaches("turning", "HTTP/2")
        assert looping.address in held.bad()["bad"], "it was asked, and is bad still"
        assert {await held.over("looping") for _ in range(4)} == {"HTTP/1.1"}
        looping.manner = "good"
        await held.reaches("looping", "HTTP/2")
        assert set(held.statuses) == {200}, "neither trials nor returns cost a request"
        assert await held.over("steady") == "HTTP/2"
        assert {await held.over("mixed") for _ in range(12)} == {"HTTP/1.1"}


async def test_tls_agrees_on_the_protocol(tmp_path: Path) -> None:
    """`auto` takes what each engine offers, and a pool that breaks it moves and is tried with requests."""
    authority = Authority(tmp_path, "engines")
    pair = authority.issue("engine", "engines.test")

    def context(*offered: str) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.load_cert_chain(pair.certificate_file, pair.key_file)
        made.set_alpn_protocols(list(offered))
        return made

    async with contextlib.AsyncExitStack() as stack:

        async def engine(*offered: str) -> TwoTongues:
            return await stack.enter_async_context(TwoTongues(context=context(*offered)))

        both, old, two = await engine("h2", "http/1.1"), await engine("http/1.1"), await engine("h2")
        pools = {"auto": ("auto", [both]), "old": ("auto", [old]), "two": ("h2", [two])}
        tls = {"ca_file": str(authority.file), "sni": "engines.test"}
        held = await stack.enter_async_context(site(tmp_path, pools, tls=tls))
        assert await held.over("auto") == "HTTP/2"
        assert await held.over("old") == "HTTP/1.1"
        assert await held.over("two") == "HTTP/2"
        both.manner = "garbage"
        await held.reaches("auto", "HTTP/1.1")
        both.manner = "good"
        await held.reaches("auto", "HTTP/2")
