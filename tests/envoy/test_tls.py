"""The real Envoy with TLS everywhere: to xds_server and ext_proc, from clients, to engines; and rotations."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from cryptography import x509
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.names import ADS_CLUSTER, EXT_PROC_CLUSTER, HEADER_REASON
from fleet.service.gate import GrpcGate
from fleet.service.tls import Certificates
from fleet.settings import parse_settings
from fleet.store import FleetStore
from testing.certificates import Authority
from warmroute.cli.main import main
from warmroute.demo.envoy import EnvoyProcess
from xds_server.app import XdsServer
from xds_server.envoy.tls import SDS_FILES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TEXT = """
pools:
  - name: chat
    joining: {{probe: none}}
    endpoints: [{{address: "127.0.0.1:{engine}"}}]
    tls:
      ca_file: {at}/engines-ca.crt
      sni: engines.test
      certificate_file: {at}/envoy.crt
      key_file: {at}/envoy.key
listeners:
  - name: llm
    address: 127.0.0.1:{front}
    pool: chat
    tls: {{certificate_file: {at}/front.crt, key_file: {at}/front.key, ocsp_file: {at}/front.ocsp}}
xds: {{address: "127.0.0.1:{xds}", state_path: {at}/last-good}}
ext_proc: {{address: "127.0.0.1:{ext_proc}"}}
tls:
  xds:
    certificate_file: {at}/warmroute.crt
    key_file: {at}/warmroute.key
    client_ca_file: {at}/test-ca.crt
  ext_proc:
    certificate_file: {at}/warmroute.crt
    key_file: {at}/warmroute.key
    client_ca_file: {at}/test-ca.crt
  envoy:
    certificate_file: {at}/envoy.crt
    key_file: {at}/envoy.key
    ca_file: {at}/test-ca.crt
    sds_directory: {at}
  roles:
    envoys: [envoy.test]
"""
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello " * 200}]}


class Site:
    """Both services on one store, an engine with TLS, and an Envoy that has only its bootstrap."""

    def __init__(self, directory: Path, ports: list[int]) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.engines = Authority(directory, "engines")
        self.front_port = ports[1]
        self.authority.issue("warmroute", "warmroute", side="server")
        self.authority.issue("envoy", "envoy.test", side="client")
        self.front = self.authority.issue("front", "front.test", side="server").certificate
        self.engine = self.engines.issue("engine", "engines.test")
        self.staple()
        names = dict(zip(("engine", "front", "xds", "ext_proc"), ports, strict=True))
        self.file = directory / "warmroute.yaml"
        self.file.write_text(TEXT.format(at=directory, **names))
        self.settings = parse_settings(self.file.read_text())
        self.registry = CollectorRegistry()
        self.certificates = Certificates(self.registry)
        self.subjects: list[Any] = []
        self.store = FleetStore()
        self.xds = self.new_xds()
        given = self.settings, self.store, CollectorRegistry(), TracerProvider()
        self.ext_proc = ExtProcServer(*given, follow=False, certificates=self.certificates)
        self.runner: web.AppRunner | None = None

    def new_xds(self) -> XdsServer:
        given = self.settings, self.store, CollectorRegistry(), TracerProvider()
        return XdsServer(*given, control=False, certificates=self.certificates)

    def staple(self) -> None:
        (self.directory / "front.ocsp").write_bytes(self.authority.staple(self.front))

    async def start(self) -> None:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", self._answer)
        self.runner = web.AppRunner(application, keepalive_timeout=30)
        await self.runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority.file))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.engine.certificate_file, self.engine.key_file)
        context.set_alpn_protocols(["http/1.1"])
        host, _, port = self.settings.pools[0].endpoints[0].address.partition(":")
        await web.TCPSite(self.runner, host, int(port), ssl_context=context).start()
        await self.xds.start()
        await self.ext_proc.start()

    async def stop(self) -> None:
        await self.xds.stop()
        await self.ext_proc.stop()
        assert self.runner is not None
        await self.runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object")
        self.subjects.append((shown.getpeercert()["subject"], shown.selected_alpn_protocol()))
        return web.json_response({})

    @property
    def url(self) -> str:
        return f"https://front.test:{self.front_port}/v1/chat/completions"


class Loopback(aiohttp.abc.AbstractResolver):
    """Every name is here."""

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> Any:
        return [{"hostname": host, "host": "127.0.0.1", "port": port, "family": 2, "proto": 0, "flags": 0}]

    async def close(self) -> None:
        """Nothing is open."""


def client(site: Site) -> aiohttp.ClientSession:
    trusting = ssl.create_default_context(cafile=str(site.authority.file))
    connector = aiohttp.TCPConnector(ssl=trusting, resolver=Loopback())
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60))


async def shown(site: Site) -> int:
    """Serial number of the certificate that a new connection gets."""
    trusting = ssl.create_default_context(cafile=str(site.authority.file))
    _, writer = await asyncio.open_connection(
        "127.0.0.1", site.front_port, ssl=trusting, server_hostname="front.test"
    )
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return x509.load_der_x509_certificate(certificate).serial_number


async def until_shown(site: Site, serial: int) -> None:
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(OSError):
                if await shown(site) == serial:
                    return
            await asyncio.sleep(0.05)


async def picked(session: aiohttp.ClientSession, site: Site) -> None:
    """Wait until ext_proc, which Envoy reaches over TLS too, has its say."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.post(site.url, json=BODY) as response:
                    if response.status == 200 and HEADER_REASON in response.headers:
                        return
            await asyncio.sleep(0.05)


def made_by(command: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(command) == 0
    return capsys.readouterr().out


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, unused_tcp_port_factory: Any) -> AsyncIterator[Site]:
    made = Site(tmp_path, [unused_tcp_port_factory() for _ in range(4)])
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def prepared(site: Site, *more: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The bootstrap and the file of secrets that the command line prints."""
    for name in SDS_FILES:
        told = made_by(["bootstrap", str(site.file), "--sds", name], capsys)
        (site.directory / f"{name}.yaml").write_text(told)
    boot = yaml.safe_load(made_by(["bootstrap", str(site.file), *more], capsys))
    assert isinstance(boot, dict)
    return boot


@pytest.mark.parametrize("variant", [(), ("--delta",)], ids=["sotw", "delta"])
async def test_a_certificate_rotates_under_load_and_no_request_fails(
    site: Site, variant: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """XDS and ext_proc over mutual TLS, the listener's by SDS, engines over TLS with Envoy's."""
    failed: list[str] = []
    served = 0
    stop = asyncio.Event()

    async def load() -> None:
        nonlocal served
        while not stop.is_set():
            # A client of its own now and then, so that there are new connections too.
            async with client(site) as session:
                for _ in range(5):
                    try:
                        async with session.post(site.url, json=BODY) as response:
                            await response.read()
                            served += 1
                            if response.status != 200:
                                failed.append(str(response.status))
                    except aiohttp.ClientError as error:
                        failed.append(repr(error))

    async with EnvoyProcess(prepared(site, *variant, capsys=capsys), directory=site.directory) as envoy:
        await until_shown(site, site.front.serial_number)
        async with client(site) as kept:
            await picked(kept, site)
            loads = [asyncio.create_task(load()) for _ in range(4)]
            old = site.front
            site.front = site.authority.issue("front", "front.test", side="server").certificate
            # Until the staple fits too, the old set stays as a whole.
            await site.certificates.look()
            assert await shown(site) == old.serial_number
            site.staple()
            await site.certificates.look()
            await until_shown(site, site.front.serial_number)
            before = served
            while served < before + 50:
                await asyncio.sleep(0.02)
            stop.set()
            await asyncio.gather(*loads)
            await picked(kept, site)  # On the connection from before.
        assert failed == []
        assert {(subject[0][0][1], alpn) for subject, alpn in site.subjects} == {("envoy", "http/1.1")}
        stats = await envoy.stats()
        assert [name for name, value in stats.items() if name.endswith("update_rejected") and value] == []
        key = (site.directory / "front.key").read_text().splitlines()[1]
        assert key not in str(await envoy.config_dump())
        assert "PRIVATE KEY" not in (site.directory / "last-good").read_text()


async def test_envoy_certificate_rotates_with_our_authority(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new authority for all: what is connected goes on, and who connects anew has the new certificates."""
    async with EnvoyProcess(prepared(site, capsys=capsys), directory=site.directory):
        await until_shown(site, site.front.serial_number)
        new = Authority(site.directory)
        new.issue("warmroute", "warmroute", side="server")
        new.issue("envoy", "envoy.test", side="client")
        site.authority = new
        site.front = new.issue("front", "front.test", side="server").certificate
        site.staple()
        await site.certificates.look()
        await until_shown(site, site.front.serial_number)
        # Another xds_server at the same address: both sides know each other by the new authority only.
        await site.xds.stop()
        site.xds = site.new_xds()
        await site.xds.start()
        site.front = new.issue("front", "front.test", side="server").certificate
        site.staple()
        await site.certificates.look()
        await until_shown(site, site.front.serial_number)


async def test_an_engine_with_another_name_gets_nothing(
    tmp_path: Path, unused_tcp_port_factory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    site = Site(tmp_path, [unused_tcp_port_factory() for _ in range(4)])
    site.engine = site.engines.issue("engine", "somebody.test")
    await site.start()
    try:
        async with EnvoyProcess(prepared(site, capsys=capsys), directory=tmp_path):
            await until_shown(site, site.front.serial_number)
            async with client(site) as session, session.post(site.url, json=BODY) as response:
                assert response.status == 503
        assert site.subjects == []
    finally:
        await site.stop()


async def test_connections_are_renewed_under_load_and_no_request_fails(
    tmp_path: Path,
    unused_tcp_port_factory: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after each hour: streams of discovery are cut, those of requests go on to their ends."""
    short = functools.partial(GrpcGate, connection_seconds=0.5, last_seconds=0.2)
    monkeypatch.setattr("fleet.service.credentials.GrpcGate", short)
    monkeypatch.setattr("fleet.lane.server.CONNECTION_SECONDS", 0.5)
    site = Site(tmp_path, [unused_tcp_port_factory() for _ in range(4)])
    await site.start()
    statuses: Counter[tuple[int, bool]] = Counter()
    try:
        async with EnvoyProcess(prepared(site, capsys=capsys), directory=tmp_path) as envoy:
            await until_shown(site, site.front.serial_number)
            async with client(site) as session:
                await picked(session, site)

                async def renewals() -> float:
                    stats = await envoy.stats()
                    made = (f"cluster.{name}.upstream_cx_total" for name in (ADS_CLUSTER, EXT_PROC_CLUSTER))
                    return min(stats[name] for name in made)

                before = await renewals()
                async with asyncio.timeout(60):
                    while statuses.total() < 300 or await renewals() < before + 5:
                        async with session.post(site.url, json=BODY) as response:
                            statuses[response.status, HEADER_REASON in response.headers] += 1
                stats = await envoy.stats()
        assert {status for status, _ in statuses} == {200}
        assert statuses[200, False] <= statuses.total() / 20, statuses
        assert [name for name, value in stats.items() if name.endswith("update_rejected") and value] == []
    finally:
        await site.stop()


async def test_envoy_of_another_name_gets_no_configuration_and_no_key(
    tmp_path: Path, unused_tcp_port_factory: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the right authority. Once it has a listed name, the same Envoy gets all."""
    site = Site(tmp_path, [unused_tcp_port_factory() for _ in range(4)])
    site.authority.issue("envoy", "agent.test", side="client")
    await site.start()

    def refusals() -> float:
        return site.registry.get_sample_value("warmroute_certificate_refusals_total", {"use": "xds"}) or 0.0

    try:
        async with EnvoyProcess(prepared(site, capsys=capsys), directory=tmp_path) as envoy:
            async with asyncio.timeout(60):
                while refusals() < 2:
                    await asyncio.sleep(0.05)
            stats = await envoy.stats()
            assert stats["listener_manager.lds.update_success"] == 0
            assert stats["cluster_manager.cds.update_success"] == 0
        site.authority.issue("envoy", "envoy.test", side="client")
        async with EnvoyProcess(prepared(site, capsys=capsys), directory=tmp_path):
            await until_shown(site, site.front.serial_number)
            async with client(site) as session:
                await picked(session, site)
    finally:
        await site.stop()
