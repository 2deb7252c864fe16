"""The real Envoy with staples and session tickets from xds_server, seen by real TLS clients."""

from __future__ import annotations

import asyncio
import base64
import shutil
import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.x509 import ocsp
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.service.tls import Certificates
from fleet.settings import parse_settings
from fleet.store import FleetStore
from testing.certificates import Authority
from testing.responder import Responder
from warmroute.cli.main import main
from warmroute.demo.envoy import EnvoyProcess
from xds_server import app
from xds_server.app import XdsServer
from xds_server.envoy.bootstrap import bootstrap
from xds_server.tls.tickets import TURN_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from fleet.settings import Settings

TEXT = """
pools:
  - name: chat
    joining: {{probe: none}}
    endpoints: [{{address: "127.0.0.1:9"}}]
listeners:
  - name: llm
    address: 127.0.0.1:{front}
    pool: chat
    tls: {{certificate_file: {at}/front.crt, key_file: {at}/front.key, {more}}}
xds: {{address: "unix:{at}/xds"}}
ext_proc: {{address: "unix:{at}/ext_proc"}}
"""
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="asks with `openssl s_client`")


class Site:
    """xds_server with one listener, and what its certificate comes from."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.port = port
        self.authority = Authority(directory)
        self.responder = Responder(self.authority)
        self.certificates = Certificates()
        self.xds: XdsServer | None = None
        self.settings: Settings | None = None
        self.now = 0.0

    async def start(self, more: str, *, pool: bool = False) -> None:
        text = TEXT.format(at=self.directory, front=self.port, more=more)
        if pool:
            held = f"tls: {{ca_file: {self.authority.file}, sni: engines.test}}"
            text = text.replace("joining:", f"{held}\n    joining:")
        self.settings = parse_settings(text)
        given = self.settings, FleetStore(), CollectorRegistry(), TracerProvider()
        self.xds = XdsServer(*given, control=False, certificates=self.certificates)
        self.xds._secrets._tickets._clock = lambda: self.now
        await self.xds.start()

    def issue(self, **more: Any) -> int:
        """Replace the listener's certificate; returns its serial number."""
        issued = self.authority.issue("front", "front.test", responder=self.responder.url, **more)
        return self.responder.know(issued).certificate.serial_number

    def envoy(self) -> EnvoyProcess:
        assert self.settings is not None
        boot = bootstrap(ads_address=self.settings.xds.address, node_id="test", node_cluster="tests")
        return EnvoyProcess(boot, directory=self.directory)


@pytest_asyncio.fixture(loop_scope="session")
async def site(tmp_path: Path, unused_tcp_port: int) -> AsyncIterator[Site]:
    made = Site(tmp_path, unused_tcp_port)
    async with made.responder:
        try:
            yield made
        finally:
            if made.xds is not None:
                await made.xds.stop()


async def test_the_doctor_finds_nothing_in_our_tls(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    """With all of it on, towards clients and towards engines."""
    site.issue()
    await site.start("ocsp_fetch: true, shared_tickets: true", pool=True)
    async with site.envoy() as envoy:
        await until(site, lambda told: told[1] == "good")
        ask = ["doctor", "--admin", envoy.admin_address, "--p99-seconds", "600", "--fail-on", "note"]
        assert await asyncio.to_thread(main, ask) == 0, capsys.readouterr().out


async def asked(site: Site) -> tuple[int, str]:
    """Ask for a staple as a browser does: the certificate's serial number, and what came with it."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{site.port}", "-servername", "front.test"]
    command += ["-CAfile", str(site.authority.file), "-verify_return_error", "-status"]
    nothing, pipe, joined = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT
    process = await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=pipe, stderr=joined)
    text = (await process.communicate())[0].decode()
    # Before that stands the staple, which may hold a certificate of its own.
    _, _, shown = text.partition("Server certificate\n")
    if not shown:
        return 0, "no handshake"
    pem = shown[: shown.index("-----END CERTIFICATE-----")]
    serial = x509.load_pem_x509_certificate(f"{pem}-----END CERTIFICATE-----\n".encode()).serial_number
    if "OCSP response: no response sent" in text:
        return serial, "none"
    assert "OCSP Response Status: successful" in text
    assert "Cert Status: good" in text
    return serial, "good"


async def until(site: Site, wanted: Callable[[tuple[int, str]], bool]) -> tuple[int, str]:
    async with asyncio.timeout(60):
        while not wanted(told := await asked(site)):
            await asyncio.sleep(0.05)
    return told


@pytest.mark.parametrize("delegated", [False, True], ids=["issuer", "delegated"])
async def test_staple_comes_with_each_certificate(site: Site, *, delegated: bool) -> None:
    """Signed by the issuer, or with RSA by whom it has named."""
    if delegated:
        site.responder.signer = site.authority.issue("signs", signs_ocsp=True, rsa_bits=2048)
    serial = site.issue()
    await site.start("ocsp_fetch: true")
    async with site.envoy() as envoy:
        assert await until(site, lambda told: told[1] == "good") == (serial, "good")
        renewed = site.issue()
        await site.certificates.look()
        assert await until(site, lambda told: told == (renewed, "good"))
        stats = await envoy.stats()
        assert [name for name, value in stats.items() if name.endswith("update_rejected") and value] == []


@pytest.mark.parametrize(
    ("status", "http_status"), [(ocsp.OCSPCertStatus.GOOD, 503), (ocsp.OCSPCertStatus.REVOKED, 200)]
)
async def test_without_a_staple_the_certificate_goes_alone(
    site: Site, status: ocsp.OCSPCertStatus, http_status: int
) -> None:
    """A responder that is down or that says `revoked` costs no handshake."""
    site.responder.status, site.responder.http_status = status, http_status
    serial = site.issue()
    await site.start("ocsp_fetch: true")
    async with site.envoy():
        assert await until(site, lambda told: bool(told[0])) == (serial, "none")
        assert site.responder.requests


async def test_must_staple_certificate_waits_for_its_staple(site: Site) -> None:
    """Envoy itself ends such handshakes; the certificate before goes on until the responder answers."""
    first = site.issue(must_staple=True)
    await site.start("ocsp_fetch: true")
    assert site.xds is not None
    site.xds._secrets._staples._first_backoff_seconds = 0.2
    async with site.envoy():
        await until(site, lambda told: told == (first, "good"))
        site.responder.http_status = 503
        before = site.responder.requests
        second = site.issue(must_staple=True)
        await site.certificates.look()
        while site.responder.requests < before + 2:
            assert await asked(site) == (first, "good")
        site.responder.http_status = 200
        await until(site, lambda told: told == (second, "good"))


async def test_envoy_refuses_must_staple_handshakes_without_a_staple(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fact on which the waiting rests."""
    monkeypatch.setattr(app, "FIRST_SYNC_MOST_SECONDS", 0.5)
    site.responder.http_status = 503
    site.issue(must_staple=True)
    await site.start("ocsp_fetch: true")
    async with site.envoy() as envoy:
        await envoy.wait_ready()
        assert (await asked(site))[1] == "no handshake"


class Client:
    """Comes back with its sessions, one for each version of TLS."""

    def __init__(self, site: Site) -> None:
        self._port = site.port
        self._contexts = {}
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=str(site.authority.file))
            context.minimum_version = context.maximum_version = version
            self._contexts[version] = context
        self._sessions: dict[ssl.TLSVersion, Any] = {}

    async def resumed(self) -> set[bool]:
        """Connect once a version with the sessions of the first call; whether they were resumed."""
        return {await asyncio.to_thread(self._handshake, *entry) for entry in self._contexts.items()}

    def _handshake(self, version: ssl.TLSVersion, context: ssl.SSLContext) -> bool:
        with (
            socket.create_connection(("127.0.0.1", self._port), timeout=60) as plain,
            context.wrap_socket(
                plain, server_hostname="front.test", session=self._sessions.get(version)
            ) as secure,
        ):
            # TLS 1.3 sends tickets after the handshake: they are read with the answer.
            secure.sendall(b"GET / HTTP/1.0\r\nhost: front.test\r\n\r\n")
            secure.recv(1)
            self._sessions.setdefault(version, secure.session)
            return bool(secure.session_reused)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])
async def test_shared_tickets_resume_at_another_envoy(site: Site, *, shared: bool) -> None:
    site.issue()
    await site.start(f"shared_tickets: {str(shared).lower()}")
    client = Client(site)
    async with site.envoy() as one:
        await one.wait_ready()
        assert await client.resumed() == {False}
        assert await client.resumed() == {True}
    async with site.envoy() as other:
        await other.wait_ready()
        assert await client.resumed() == {shared}


async def test_tickets_outlive_a_turn_of_the_keys_but_not_two(site: Site) -> None:
    site.issue()
    await site.start("shared_tickets: true")
    assert site.xds is not None
    async with site.envoy() as envoy:
        await envoy.wait_ready()
        client = Client(site)
        assert await client.resumed() == {False}

        async def turn() -> None:
            before = await envoy.stats("sds.listener/llm/tickets")
            site.now += TURN_SECONDS
            assert site.xds is not None
            site.xds.tick()
            async with asyncio.timeout(60):
                while await envoy.stats("sds.listener/llm/tickets") == before:
                    await asyncio.sleep(0.02)

        await turn()
        assert await client.resumed() == {True}
        await turn()
        await turn()
        assert await client.resumed() == {False}
        dump = str(await envoy.config_dump())
    keys = site.xds._secrets._tickets.of("llm")
    assert len(keys) == 3
    assert not any(base64.b64encode(key).decode() in dump for key in keys)
