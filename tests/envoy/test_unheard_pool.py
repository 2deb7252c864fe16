"""A pool whose source tells nothing holds up no other pool, and is never told as empty."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.settings import parse_settings
from fleet.store import FleetStore
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import free_port
from xds_server import app
from xds_server.app import XdsServer
from xds_server.envoy import clusters
from xds_server.envoy.bootstrap import bootstrap

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """
pools:
  - name: known
    endpoints: [{{address: "{engine}"}}]
    joining: {{probe: none}}
  - name: unheard
    joining: {{probe: none}}
    discovery: [{{file: {{path: "{file}"}}}}]
listeners:
  - {{name: a, address: "127.0.0.1:{first}", pool: known}}
  - {{name: b, address: "127.0.0.1:{second}", pool: unheard}}
xds: {{address: "unix:{directory}/xds.sock", state_path: ""}}
ext_proc: {{address: "unix:{directory}/ext_proc.sock"}}
control: {{address: "unix:{directory}/control.sock"}}
admin: {{address: "", ext_proc_address: ""}}
signals: {{scrape_interval_seconds: 0.2, scrape_timeout_seconds: 0.2}}
"""
PATIENCE_SECONDS = 1.0
"""How long we wait at our start for those who tell nothing, and Envoy for a pool's endpoints: less than
outside of tests."""


async def _answer(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _status(port: int) -> int | None:
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/x", timeout=aiohttp.ClientTimeout(60)) as answer,
        ):
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return None


async def _until(port: int, status: int) -> None:
    async with asyncio.timeout(60):
        while await _status(port) != status:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "delta", [pytest.param(False, id="sotw", marks=pytest.mark.slow), pytest.param(True, id="delta")]
)
async def test_other_pools_are_served_and_a_restart_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delta: bool
) -> None:
    """New Envoys get the pools that are known; one that knows the other pool keeps it over our restart."""
    monkeypatch.setattr(clusters, "_FIRST_ENDPOINTS_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(app, "FIRST_SYNC_MOST_SECONDS", PATIENCE_SECONDS)
    application = web.Application()
    application.router.add_get("/x", _answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", engine_port := free_port())
    await site.start()
    file, first, second = tmp_path / "endpoints.yaml", free_port(), free_port()
    engine = f"127.0.0.1:{engine_port}"
    text = TEXT.format(engine=engine, file=file, first=first, second=second, directory=tmp_path)
    settings = parse_settings(text)
    made = bootstrap(ads_address=settings.xds.address, node_id="e", node_cluster="c", delta=delta)
    made["admin"] = {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}}

    async def started() -> XdsServer:
        server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
        await server.start()
        return server

    server, loop = await started(), asyncio.get_running_loop()
    try:
        async with EnvoyProcess(made, directory=tmp_path):
            await _until(first, 200)
            assert await _status(second) in {None, 503}
            # The file of another pool's engine: an address stands in one pool only.
            other = f'[{{address: "127.0.0.2:{engine_port}"}}]'
            again = web.TCPSite(runner, "127.0.0.2", engine_port)
            await again.start()
            file.write_text(other)
            await _until(second, 200)
            await server.stop()
            file.unlink()
            server = await started()
            # Until it is ready without that pool, and for twice as long as Envoy waits for endpoints.
            until = None
            while until is None or loop.time() < until:
                assert (await _status(first), await _status(second)) == (200, 200)
                await asyncio.sleep(0.05)
                if until is None and server.ready:
                    until = loop.time() + 2 * PATIENCE_SECONDS
    finally:
        await server.stop()
        await runner.cleanup()
