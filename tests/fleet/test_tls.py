"""Certificates in files, and gRPC and HTTP servers that take over new ones."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import CollectorRegistry

from fleet.errors import SettingsError
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.credentials import Dialler, server_credentials
from fleet.service.serving import GrpcServer
from fleet.service.tls import CertificateProvider, Certificates, Files, TlsError, load
from fleet.settings import PeerTlsSettings, parse_settings
from fleet.settings.address import is_local
from testing.certificates import Authority, Issued

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASE = """
pools: [{name: p, endpoints: [{address: "127.0.0.1:8000"}]}]
listeners: [{name: l, address: "127.0.0.1:10000", pool: p}]
"""
SERVER = "certificate_file: /c, key_file: /k"
PEER = "{certificate_file: /c, key_file: /k, ca_file: /a}"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(issued: Issued, **others: Any) -> Files:
    return Files(str(issued.certificate_file), str(issued.key_file), **others)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_a_good_set_is_read_whole(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("server", "warmroute", days=3)
    staple = tmp_path / "staple"
    staple.write_bytes(authority.staple(issued.certificate))
    material = load(files(issued, ca_file=str(authority.file), ocsp_file=str(staple)))
    assert material.certificate == issued.certificate_file.read_bytes()
    assert material.ocsp == staple.read_bytes()
    # Of a chain the one that ends first counts: the authority lives for 30 days.
    assert material.expires_at == issued.certificate.not_valid_after_utc.timestamp()
    assert material.key not in repr(material).encode()
    assert "PRIVATE" not in repr(material)


def damaged(path: Path) -> None:
    path.write_bytes(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("field", "harm"),
    [
        ("certificate_file", lambda issued, _: issued.certificate_file.unlink()),
        ("certificate_file", lambda issued, _: damaged(issued.certificate_file)),
        ("certificate_file", lambda issued, _: issued.certificate_file.write_bytes(b"")),
        ("certificate_file", lambda issued, _: issued.certificate_file.write_bytes(b"x" * 2_000_000)),
        ("key_file", lambda issued, _: issued.key_file.unlink()),
        ("key_file", lambda issued, _: damaged(issued.key_file)),
        ("key_file", lambda issued, other: other.key_file.replace(issued.key_file)),
        ("client_ca_file", lambda issued, other: damaged(other.certificate_file)),
        ("ocsp_file", lambda issued, other: (other.key_file.parent / "staple").write_bytes(b"no")),
    ],
)
def test_a_broken_set_names_the_field_and_nothing_of_its_content(
    authority: Authority, tmp_path: Path, field: str, harm: Callable[[Issued, Issued], Any]
) -> None:
    issued, other = authority.issue("server"), authority.issue("other")
    staple = tmp_path / "staple"
    staple.write_bytes(authority.staple(issued.certificate))
    paths = Files(
        str(issued.certificate_file),
        str(issued.key_file),
        str(other.certificate_file),
        str(staple),
        ca_field="client_ca_file",
    )
    load(paths)
    harm(issued, other)
    with pytest.raises(TlsError) as caught:
        load(paths)
    assert [named for named, _ in caught.value.problems] == [field]
    with pytest.raises(SettingsError, match=rf"^tls\.xds\.{field}: "):
        Certificates().watch("xds", "tls.xds", paths)


def test_a_staple_of_another_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    issued, other = authority.issue("server"), authority.issue("other")
    staple = tmp_path / "staple"
    staple.write_bytes(authority.staple(other.certificate))
    with pytest.raises(TlsError, match="first certificate"):
        load(files(issued, ocsp_file=str(staple)))


async def test_changed_files_are_taken_over_as_a_whole(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """With only one of the two replaced, what was in force stays; it is counted and told, without the key."""
    registry, changes = CollectorRegistry(), []
    certificates = Certificates(registry)
    issued = authority.issue("server", days=3)
    provider = certificates.watch("xds", "tls.xds", files(issued))
    provider.on_change.append(lambda: changes.append(provider.material))
    first = provider.material
    other = authority.issue("next", days=5)
    other.key_file.replace(issued.key_file)
    with caplog.at_level(logging.INFO):
        await certificates.look()
        await certificates.look()
    assert provider.material is first
    assert value(registry, "warmroute_certificate_reloads_total", use="xds", outcome="refused") == 1
    assert "key_file" in caplog.text
    other.certificate_file.replace(issued.certificate_file)
    await certificates.look()
    assert changes == [provider.material] != [first]
    assert value(registry, "warmroute_certificate_reloads_total", use="xds", outcome="applied") == 1
    ends = other.certificate.not_valid_after_utc.timestamp()
    assert value(registry, "warmroute_certificate_expiry_seconds", use="xds") == ends
    assert "PRIVATE" not in caplog.text
    certificates.drop("xds")
    assert value(registry, "warmroute_certificate_expiry_seconds", use="xds") is None


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (f"tls: {{xds: {{{SERVER}}}}}", "tls.xds"),
        (f"tls: {{control: {{{SERVER}}}}}", "tls.control"),
        (f"tls: {{xds: {{{SERVER}}}, envoy: {PEER}}}\nxds: {{address: 'h:1'}}", "xds.address"),
        (f"tls: {{ext_proc: {{{SERVER}}}, envoy: {PEER}}}\next_proc: {{address: 'h:1'}}", "ext_proc.address"),
        (f"tls: {{admin: {{{SERVER}}}}}\nadmin: {{address: 'h:1'}}", "admin.address"),
        ("xds: {address: '127.0.0.1:1'}", "listeners[0].tls"),
        ("xds: {address: 'h:1'}\nallow_plaintext: true", "listeners[0].tls"),
        (
            f"tls: {{admin: {{{SERVER}, client_ca_file: /a}}}}\next_proc: {{workers: 2}}",
            "tls.admin.client_ca_file",
        ),
    ],
)
def test_settings_that_would_leave_something_open_are_refused(text: str, path: str) -> None:
    base = BASE
    if path.startswith("listeners"):
        base = base.replace("pool: p}", f"pool: p, tls: {{{SERVER}}}}}")
    with pytest.raises(SettingsError) as caught:
        parse_settings(f"{base}{text}\n")
    assert any(f": {path}: " in problem for problem in caught.value.problems)


def test_with_mutual_tls_addresses_may_be_anywhere() -> None:
    mutual = f"{{{SERVER}, client_ca_file: /a}}"
    settings = parse_settings(
        f"{BASE}tls: {{xds: {mutual}, ext_proc: {mutual}, control: {mutual}, "
        f"envoy: {PEER}, workers: {PEER}}}\n"
        "xds: {address: 'h:1'}\next_proc: {address: 'h:2'}\ncontrol: {address: 'h:3'}\n"
    )
    assert sum(not is_local(address) for address in settings.addresses.values()) == 3


async def status_of(dialler: Dialler) -> str:
    """Ask for health on a new channel; returns the outcome's name."""
    async with dialler.open() as channel:
        try:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name)
    return "OK"


def peer(issued: Issued, authority: Authority, name: str = "warmroute") -> PeerTlsSettings:
    return PeerTlsSettings(
        certificate_file=str(issued.certificate_file),
        key_file=str(issued.key_file),
        ca_file=str(authority.file),
        server_name=name,
    )


async def test_grpc_uses_new_certificates_at_next_handshake(
    authority: Authority, tmp_path: Path, unused_tcp_port: int
) -> None:
    """Strangers, other names and plaintext are refused; a rotation needs no restart and cuts no channel."""
    issued, client = authority.issue("server", "warmroute"), authority.issue("client")
    stranger = Authority(tmp_path, "strange")
    certificates = Certificates()
    provider = certificates.watch("xds", "tls.xds", files(issued, ca_file=str(authority.file)))
    address = f"127.0.0.1:{unused_tcp_port}"
    server = GrpcServer("x", address, credentials=server_credentials(provider))
    await server.start()
    own = Certificates()
    good = Dialler.of(address, peer(client, authority), "tls.workers", own)
    try:
        assert await status_of(good) == "OK"
        assert await status_of(Dialler(address)) == "UNAVAILABLE"
        for other in (
            peer(stranger.issue("client2"), authority),
            peer(client, stranger),
            peer(client, authority, "another"),
        ):
            assert await status_of(Dialler.of(address, other, "tls.workers", Certificates())) == "UNAVAILABLE"
        async with good.open() as before:
            stub = health_pb2_grpc.HealthStub(before)
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
            moved = Authority(tmp_path)  # In the same file: all of it is new.
            moved.issue("server", "warmroute")
            await certificates.look()
            assert await status_of(good) == "UNAVAILABLE"
            moved.issue("client")
            before_look = good.stale
            await own.look()
            assert (before_look, good.stale) == (False, True)
            assert await status_of(good) == "OK"
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
    finally:
        await server.stop(0)


def served(port: int) -> int:
    """Serial number of the certificate that a new connection is shown."""
    context = ssl._create_unverified_context()
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain) as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown).serial_number


async def test_admin_speaks_tls_and_takes_new_certificates(
    authority: Authority, unused_tcp_port: int
) -> None:
    certificates = Certificates()
    issued = authority.issue("server", "localhost")
    provider = certificates.watch("admin", "tls.admin", files(issued))
    address = f"127.0.0.1:{unused_tcp_port}"
    admin = AdminServer(Access(address, tls=provider), CollectorRegistry(), lambda: True, {})
    await admin.start()
    trusting = ssl.create_default_context(cafile=str(authority.file))
    try:
        async with aiohttp.ClientSession() as session:
            url = f"https://localhost:{unused_tcp_port}/healthz"
            async with session.get(url, ssl=trusting) as response:
                assert response.status == 200
            assert await asyncio.to_thread(served, unused_tcp_port) == issued.certificate.serial_number
            next_one = authority.issue("server", "localhost")
            await certificates.look()
            assert await asyncio.to_thread(served, unused_tcp_port) == next_one.certificate.serial_number
            # The connection from before is still good.
            async with session.get(url, ssl=trusting) as response:
                assert response.status == 200
    finally:
        await admin.stop()


def test_each_use_has_one_provider(authority: Authority) -> None:
    certificates, issued = Certificates(), authority.issue("server")
    provider: CertificateProvider = certificates.watch("admin", "tls.admin", files(issued))
    assert certificates.watch("admin", "tls.admin", files(issued)) is provider


def test_unreadable_files_are_all_named_with_step(authority: Authority, tmp_path: Path) -> None:
    issued = authority.issue("server")
    files_of_it = files(issued, ca_file=f"{tmp_path}/none.crt", ca_field="client_ca_file")
    issued.key_file.unlink()
    with pytest.raises(SettingsError) as caught:
        Certificates().check("xds", "tls.xds", files_of_it)
    assert caught.value.problems == [
        f"tls.xds.{field}: '{path}' cannot be read: no such file or directory; put it there, or mend the path"
        for field, path in (("key_file", issued.key_file), ("client_ca_file", f"{tmp_path}/none.crt"))
    ]
