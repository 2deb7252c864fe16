"""Envoy comes back to engines with the TLS sessions that it has from them, as many as the settings say."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import aiohttp
import pytest
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

TEXT = """
pools:
  - name: chat
    joining: {{probe: none}}
    endpoints: [{{address: "127.0.0.1:{engine}"}}]
    tls: {{ca_file: {at}/test-ca.crt, sni: engines.test{more}}}
listeners: [{{name: llm, address: "127.0.0.1:{front}", pool: chat}}]
xds: {{address: "unix:{at}/xds"}}
ext_proc: {{address: "unix:{at}/ext_proc"}}
"""
REQUESTS = 8


class Engine:
    """Ends each connection after one answer, as a restarting one or one without keep-alive does."""

    def __init__(self) -> None:
        self.resumed: list[bool] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reused = writer.get_extra_info("ssl_object").session_reused
        request = await reader.readuntil(b"\r\n\r\n")
        if b"/v1/models" in request.split(b"\r\n")[0]:  # The scrapes of xds_server come by themselves.
            self.resumed.append(reused)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")
        await writer.drain()
        writer.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize(("more", "resumes"), [("", True), (", session_keys: 0", False)], ids=["16", "0"])
async def test_sessions_with_engines_are_resumed(
    tmp_path: Path, unused_tcp_port: int, version: ssl.TLSVersion, more: str, *, resumes: bool
) -> None:
    issued = Authority(tmp_path).issue("engine", "engines.test")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate_file, issued.key_file)
    context.maximum_version = version
    engine = Engine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    settings = parse_settings(TEXT.format(at=tmp_path, engine=port, front=unused_tcp_port, more=more))
    xds = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    await xds.start()
    boot = bootstrap(ads_address=settings.xds.address, node_id="test", node_cluster="tests")
    try:
        async with EnvoyProcess(boot, directory=tmp_path) as envoy, aiohttp.ClientSession() as session:
            await envoy.wait_ready()
            for _ in range(REQUESTS):
                url = f"http://127.0.0.1:{unused_tcp_port}/v1/models"
                async with session.get(url) as response:
                    assert response.status == 200
    finally:
        await xds.stop()
        server.close()
    assert engine.resumed == [False] + [resumes] * (REQUESTS - 1)
