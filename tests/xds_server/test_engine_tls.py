"""xds_server reads and probes engines with TLS as Envoys speak to them, and follows rotations."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.service.tls import Certificates
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.store import FleetStore
from testing.certificates import Authority, Issued
from testing.signals import Load, loads_of
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fleet.endpoint import Endpoint

TEXT = """
pools:
  - name: chat
    models: [m]
    engine: vllm
    joining: {{probe: models, probe_interval_seconds: 0.05}}
    endpoints: [{{address: "127.0.0.1:{port}"}}]
    tls:
      ca_file: {at}/engines-ca.crt
      sni: engines.test
      certificate_file: {at}/envoy.crt
      key_file: {at}/envoy.key
listeners: [{{name: llm, address: "127.0.0.1:10000", pool: chat}}]
xds: {{address: "unix:{at}/xds"}}
signals: {{scrape_interval_seconds: 0.05, scrape_timeout_seconds: 60.0}}
"""
PAGE = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"


class Engine:
    """Wants a certificate, and remembers whose it got for which page."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.authority = Authority(directory, "engines")
        self.clients = Authority(directory, "clients")
        self.clients.issue("envoy")
        self.requests: set[tuple[str, str]] = set()
        self._runner: web.AppRunner | None = None

    async def start(self, issued: Issued) -> None:
        application = web.Application()
        application.router.add_get("/{page:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.clients.file))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(issued.certificate_file, issued.key_file)
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=context).start()

    async def stop(self) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object").getpeercert()
        self.requests.add((request.path, shown["subject"][0][0][1]))
        if request.path == "/metrics":
            return web.Response(text=PAGE)
        return web.json_response({"data": [{"id": "m"}]})


@pytest_asyncio.fixture
async def engine(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Engine]:
    made = Engine(tmp_path, unused_tcp_port)
    yield made
    await made.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def server(engine: Engine, certificates: Certificates, registry: CollectorRegistry) -> XdsServer:
    settings = parse_settings(TEXT.format(at=engine.directory, port=engine.port))
    arguments = settings, FleetStore(), registry, TracerProvider()
    return XdsServer(*arguments, control=False, certificates=certificates)


def load(xds: XdsServer) -> Load | None:
    return loads_of(xds._sensing.scraper.signals()).get(
        f"127.0.0.1:{xds._settings.pools[0].endpoints[0].address[10:]}"
    )


def failures(registry: CollectorRegistry) -> float:
    return sum(
        registry.get_sample_value("warmroute_scrape_failures_total", {"kind": kind}) or 0.0
        for kind in ("connect", "protocol")
    )


async def test_pages_and_probes_go_over_tls_and_follow_a_rotation(engine: Engine) -> None:
    """With a new authority on the engines' side, and a new certificate on ours."""
    certificates, registry = Certificates(), CollectorRegistry()
    await engine.start(engine.authority.issue("engine", "engines.test"))
    xds = server(engine, certificates, registry)
    await xds.start()
    try:
        await until(lambda: xds.ready and (signals := load(xds)) and signals.running)
        assert engine.requests == {("/metrics", "envoy"), ("/v1/models", "envoy"), ("/health", "envoy")}
        await engine.stop()
        engine.authority = Authority(engine.directory, "engines")
        await engine.start(engine.authority.issue("engine", "engines.test"))
        await until(lambda: failures(registry))
        engine.requests.clear()
        await certificates.look()
        await until(lambda: ("/metrics", "envoy") in engine.requests)
    finally:
        await xds.stop()


@pytest.mark.parametrize("stranger", ["name", "authority"])
async def test_engine_that_envoy_refuses_is_not_trusted(
    engine: Engine, tmp_path: Path, stranger: str
) -> None:
    registry = CollectorRegistry()
    by = Authority(tmp_path, "stranger") if stranger == "authority" else engine.authority
    await engine.start(by.issue("engine", "engines.test" if stranger == "authority" else "other.test"))
    xds = server(engine, Certificates(), registry)
    await xds.start()
    try:
        await until(lambda: failures(registry) >= 2)
        assert engine.requests == set()
    finally:
        await xds.stop()


def endpoint(metrics_url: str, *, tls: bool) -> Endpoint:
    text = TEXT.format(at="/x", port=8000)
    text = text.replace('8000"}', f'8000"{metrics_url}}}')
    if not tls:
        text = text[: text.index("    tls:")] + text[text.index("listeners:") :]
    return membership(parse_settings(text)).endpoints[0]


def test_page_scheme_follows_the_port() -> None:
    assert endpoint("", tls=True).metrics_url == "https://127.0.0.1:8000/metrics"
    assert endpoint("", tls=False).metrics_url == "http://127.0.0.1:8000/metrics"
    url = "http://127.0.0.1:9400/m"
    assert endpoint(f", metrics_url: '{url}'", tls=True).metrics_url == url
