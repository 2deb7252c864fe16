"""Requests move to a pool with TLS and back while they run: clusters with their secrets, routes, removals."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.settings import parse_settings
from fleet.store import FleetStore
from testing.certificates import Authority
from warmroute.demo.envoy import EnvoyProcess
from xds_server.app import XdsServer
from xds_server.envoy.bootstrap import bootstrap

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = """
pools: [{{name: plain, joining: {{probe: none}}, endpoints: [{{address: "127.0.0.1:{plain}"}}]}}]
listeners: [{{name: llm, address: "127.0.0.1:{front}", pool: plain}}]
xds: {{address: "unix:{at}/xds"}}
ext_proc: {{address: "unix:{at}/ext_proc"}}
"""
SECURE = """
pools:
  - name: secure
    joining: {{probe: none}}
    endpoints: [{{address: "127.0.0.1:{secure}"}}]
    tls: {{ca_file: {at}/test-ca.crt, sni: engines.test}}
listeners: [{{name: llm, address: "127.0.0.1:{front}", pool: secure}}]
xds: {{address: "unix:{at}/xds"}}
ext_proc: {{address: "unix:{at}/ext_proc"}}
"""


async def engine(name: str, context: ssl.SSLContext | None = None) -> tuple[web.AppRunner, int]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=name)

    application = web.Application()
    application.router.add_get("/{page:.*}", answer)
    runner = web.AppRunner(application, access_log=None, keepalive_timeout=30)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    return runner, runner.addresses[0][1]


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
async def test_pools_may_change_between_tls_and_plaintext(
    tmp_path: Path, unused_tcp_port: int, *, delta: bool
) -> None:
    issued = Authority(tmp_path).issue("engine", "engines.test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate_file, issued.key_file)
    (plain, plain_port), (secure, secure_port) = await engine("plain"), await engine("secure", context)
    names: dict[str, Any] = {
        "at": tmp_path,
        "front": unused_tcp_port,
        "plain": plain_port,
        "secure": secure_port,
    }
    sides = {
        name: parse_settings(text.format(**names)) for name, text in (("plain", PLAIN), ("secure", SECURE))
    }
    xds = XdsServer(sides["plain"], FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    await xds.start()
    boot = bootstrap(ads_address=f"unix:{tmp_path}/xds", node_id="test", node_cluster="tests", delta=delta)
    answers: list[str] = []

    async def load(session: aiohttp.ClientSession) -> None:
        while True:
            async with session.get(f"http://127.0.0.1:{unused_tcp_port}/v1/models") as response:
                text = await response.text()
                answers.append(text if response.status == 200 else f"{response.status} {text}")

    try:
        async with EnvoyProcess(boot, directory=tmp_path) as envoy, aiohttp.ClientSession() as session:
            await envoy.wait_ready()
            sending = asyncio.create_task(load(session))
            for side in ("secure", "plain", "secure", "plain"):
                await xds.apply(sides[side])
                async with asyncio.timeout(60):
                    while not answers or answers[-1] != side:
                        assert not sending.done(), sending.exception()
                        await asyncio.sleep(0.01)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
            stats = await envoy.stats()
    finally:
        await xds.stop()
        await plain.cleanup()
        await secure.cleanup()
    assert set(answers) == {"plain", "secure"}
    assert [name for name, value in stats.items() if name.endswith("update_rejected") and value] == []
