"""Real services, real certificates of one authority: who gets what from whom, by the names in them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.envoy_api.extensions.transport_sockets.tls.v3 import secret_pb2
from fleet.envoy_api.service.accesslog.v3 import als_pb2
from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2
from fleet.envoy_api.service.status.v3 import csds_pb2
from fleet.names import TYPE_CLUSTER, TYPE_SECRET
from fleet.service.admin import AdminServer
from fleet.service.admin_access import Access
from fleet.service.roles import ROLES_OF_SERVICES
from fleet.service.tls import Certificates
from fleet.settings import parse_settings
from fleet.store import FleetStore
from fleet.wire import control_pb2, gpu_pb2
from testing.certificates import Authority
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TEXT = """
pools:
  - name: chat
    joining: {{probe: none}}
    endpoints: [{{address: "127.0.0.1:{engine}"}}]
listeners:
  - name: llm
    address: 127.0.0.1:10000
    pool: chat
    tls: {{certificate_file: {at}/front.crt, key_file: {at}/front.key}}
xds: {{address: "127.0.0.1:{xds}", state_path: ""}}
ext_proc: {{address: "127.0.0.1:{ext_proc}"}}
control: {{address: "127.0.0.1:{control}"}}
admin: {{address: "127.0.0.1:{admin}"}}
limits: {{drain_seconds: 0.1}}
tls:
  xds:
    {{certificate_file: {at}/warmroute.crt, key_file: {at}/warmroute.key, client_ca_file: {at}/test-ca.crt}}
  ext_proc:
    {{certificate_file: {at}/warmroute.crt, key_file: {at}/warmroute.key, client_ca_file: {at}/test-ca.crt}}
  control:
    {{certificate_file: {at}/warmroute.crt, key_file: {at}/warmroute.key, client_ca_file: {at}/test-ca.crt}}
  admin:
    {{certificate_file: {at}/warmroute.crt, key_file: {at}/warmroute.key, client_ca_file: {at}/test-ca.crt}}
  envoy: {{certificate_file: {at}/envoy.crt, key_file: {at}/envoy.key, ca_file: {at}/test-ca.crt}}
  workers: {{certificate_file: {at}/worker.crt, key_file: {at}/worker.key, ca_file: {at}/test-ca.crt}}
  {roles}
"""
ROLES = """roles:
    envoys: [envoy, "spiffe://site.test/front/*"]
    grpc_clients: [app]
    gateways: [gateway]
    workers: [worker]
    agents: ["*.gpu.test"]
    operators: [operator]
"""
NAMES: Final = {
    "envoy": ["envoy"],
    "spiffe": ["spiffe://site.test/front/3"],
    "app": ["app"],
    "gateway": ["gateway"],
    "worker": ["worker"],
    "agent": ["host-7.gpu.test"],
    "operator": ["operator"],
    "warmroute": ["warmroute"],
    "front": ["front.test"],
    "cut": ["envoy\0.site.test"],
    "nameless": [],
}
"""Certificate to its names; all are signed by the one authority."""


class Site:
    """All that has an address, with TLS."""

    def __init__(self, directory: Path, ports: list[int], roles: str = ROLES) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        for name, names in NAMES.items():
            self.authority.issue(name, *names)
        self.ports = dict(zip(("engine", "xds", "ext_proc", "control", "admin"), ports, strict=True))
        self.registry = CollectorRegistry()
        self.certificates = Certificates(self.registry)
        self.settings = self.with_roles(roles)
        given = self.settings, FleetStore(), self.registry, TracerProvider()
        self.xds = XdsServer(*given, control=True, certificates=self.certificates)
        self.ext_proc = ExtProcServer(*given, follow=False, certificates=self.certificates)
        access = Access.of(self.settings, "admin.address", self.certificates)
        self.gate = access.gate
        self.admin = AdminServer(
            access,
            self.registry,
            lambda: True,
            {"/api/v1/x": dict},
            actions={"/api/v1/change": lambda _: {}},
        )

    def with_roles(self, roles: str) -> Any:
        return parse_settings(TEXT.format(at=self.directory, roles=roles, **self.ports))

    def channel(self, service: str, who: str) -> grpc.aio.Channel:
        files = [self.directory / f"{who}.{kind}" for kind in ("key", "crt")]
        shown = [file.read_bytes() for file in files]
        return grpc.aio.secure_channel(
            f"127.0.0.1:{self.ports[service]}",
            grpc.ssl_channel_credentials(self.authority.file.read_bytes(), *shown),
            options=[("grpc.ssl_target_name_override", "warmroute"), ("grpc.use_local_subchannel_pool", 1)],
        )

    def refusals(self, use: str) -> float | None:
        return self.registry.get_sample_value("warmroute_certificate_refusals_total", {"use": use})


@contextlib.asynccontextmanager
async def running(site: Site) -> AsyncIterator[Site]:
    parts: list[Any] = [site.xds, site.ext_proc, site.admin]
    for part in parts:
        await part.start()
    try:
        yield site
    finally:
        for part in parts:
            await part.stop()


@pytest_asyncio.fixture
async def site(tmp_path: Path, unused_tcp_port_factory: Any) -> AsyncIterator[Site]:
    async with running(Site(tmp_path, [unused_tcp_port_factory() for _ in range(5)])) as made:
        yield made


def ads(type_url: str, *names: str) -> bytes:
    request = discovery_pb2.DiscoveryRequest(type_url=type_url, resource_names=names)
    request.node.id = "node"
    return bytes(request.SerializeToString())


_HEADERS = external_processor_pb2.ProcessingRequest()
_HEADERS.request_headers.end_of_stream = True
ASKED: Final[dict[str, tuple[str, str, bytes, str]]] = {
    "discovery": (
        "xds",
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        ads(TYPE_CLUSTER),
        "envoy spiffe app",
    ),
    "clusters": (
        "xds",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        ads(TYPE_CLUSTER),
        "envoy spiffe app",
    ),
    "logs": (
        "xds",
        "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs",
        als_pb2.StreamAccessLogsMessage().SerializeToString(),
        "envoy spiffe",
    ),
    "states": (
        "xds",
        "/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus",
        csds_pb2.ClientStatusRequest().SerializeToString(),
        "operator",
    ),
    "gpus": (
        "xds",
        "/warmroute.v1.GpuReports/Report",
        gpu_pb2.GpuReport(node="n").SerializeToString(),
        "agent",
    ),
    "gpus by control": (
        "control",
        "/warmroute.v1.GpuReports/Report",
        gpu_pb2.GpuReport(node="n").SerializeToString(),
        "agent",
    ),
    "fleet": (
        "control",
        "/warmroute.v1.FleetControl/Follow",
        control_pb2.FollowRequest(hello=control_pb2.Hello(worker="w")).SerializeToString(),
        "worker",
    ),
    "picks": (
        "ext_proc",
        "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
        _HEADERS.SerializeToString(),
        "envoy spiffe gateway",
    ),
    "leading picks": (
        "ext_proc",
        "/envoy.service.auth.v3.Authorization/Check",
        b"",
        "envoy spiffe",
    ),
}
"""Where to ask, for what, with what, and whose certificates may."""
HEALTH = "/grpc.health.v1.Health/Check"


async def code(site: Site, service: str, who: str, method: str, message: bytes) -> grpc.StatusCode:
    """How a call ends whose client sends one message and no more; it may hear any number.

    grpcio's client reports INTERNAL where a refusal arrives while it writes: such a call is made again, and
    writes nothing.
    """
    status = await _code_once(site, service, who, method, message)
    if status is grpc.StatusCode.INTERNAL:
        status = await _code_once(site, service, who, method, None)
    return status


async def _code_once(
    site: Site, service: str, who: str, method: str, message: bytes | None
) -> grpc.StatusCode:
    async with site.channel(service, who) as channel:
        call = channel.stream_stream(method)(timeout=20)
        if message is not None:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(message)
                await call.done_writing()
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await call.read() is not grpc.aio.EOF:
                if method.endswith("/Follow"):
                    return grpc.StatusCode.OK
        return await call.code()


@pytest.mark.parametrize("asked", ASKED)
async def test_each_role_gets_its_own_and_no_more(site: Site, asked: str) -> None:
    service, method, message, allowed = ASKED[asked]
    denied, others = set(), set()
    for who in NAMES:
        before = site.refusals(service)
        status = await code(site, service, who, method, message)
        if site.refusals(service) == before:
            others.add(status)
            continue
        denied.add(who)
        # A client that is still writing may see its own trouble in the place of the status.
        assert status is not grpc.StatusCode.OK
    assert set(NAMES) - denied == set(allowed.split())
    assert others <= {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT}
    assert await code(site, service, "nameless", HEALTH, b"") is grpc.StatusCode.OK


async def test_every_service_has_somebody_who_may_call_it(site: Site) -> None:
    """What is registered and not in the table would be refused to all."""
    for method in (asked[1] for asked in ASKED.values()):
        assert method.split("/")[1] in ROLES_OF_SERVICES
    assert len({asked[1].split("/")[1] for asked in ASKED.values()}) + 3 == len(ROLES_OF_SERVICES)
    assert health_pb2.DESCRIPTOR.services_by_name["Health"].full_name not in ROLES_OF_SERVICES


async def secret(site: Site, who: str, last: str = TYPE_SECRET) -> bytes | None:
    """The listener's key as a certificate's holder gets it up to a response of type `last`; None: no key.

    Of two requests that arrive together, the clusters may be answered first.
    """
    async with site.channel("xds", who) as channel:
        call = channel.stream_stream(ASKED["discovery"][1])(timeout=20)
        await call.write(ads(TYPE_SECRET, "listener/llm"))
        await call.write(ads(TYPE_CLUSTER))
        found: dict[str, Any] = {}
        while last not in found:
            told = discovery_pb2.DiscoveryResponse.FromString(await call.read())
            found[told.type_url] = told.resources
        call.cancel()
        if TYPE_SECRET not in found:
            return None
        made = secret_pb2.Secret.FromString(found[TYPE_SECRET][0].value)
        return bytes(made.tls_certificate.private_key.inline_bytes)


async def test_keys_go_to_envoys_and_not_to_grpcs_own_clients(site: Site) -> None:
    key = (site.directory / "front.key").read_bytes()
    assert await secret(site, "envoy") == key
    assert await secret(site, "spiffe") == key
    assert await secret(site, "app", TYPE_CLUSTER) is None


@pytest.mark.parametrize("who", NAMES)
async def test_admin_is_operators(site: Site, who: str) -> None:
    at = site.directory
    shown = ssl.create_default_context(cafile=f"{at}/test-ca.crt")
    shown.load_cert_chain(f"{at}/{who}.crt", f"{at}/{who}.key")
    url = f"https://127.0.0.1:{site.ports['admin']}"
    wanted = 200 if who == "operator" else 403
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=shown)) as session:
        for path in ("/metrics", "/api/v1/x"):
            async with session.get(url + path, server_hostname="warmroute") as response:
                assert response.status == wanted
        async with session.post(f"{url}/api/v1/change", json={}, server_hostname="warmroute") as response:
            assert response.status == wanted
        async with session.get(f"{url}/healthz", server_hostname="warmroute") as response:
            assert response.status == 200


async def test_refusal_names_certificate_and_setting_once_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    service, method, _, _ = ASKED["fleet"]
    with caplog.at_level(logging.WARNING):
        async with site.channel(service, "agent") as channel:
            for _ in range(3):
                call = channel.stream_stream(method)(timeout=20)
                assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
                told = await call.details()
                assert told == (
                    "the certificate shows 'host-7.gpu.test'; allowed: a name in tls.roles.workers"
                )
    (record,) = [record for record in caplog.records if record.name == "fleet.service.gate"]
    assert record.getMessage().startswith("control refuses ipv4:127.0.0.1:")
    assert ", which asks for warmroute.v1.FleetControl: " in record.getMessage()
    assert site.refusals("control") == 3


async def test_changed_names_end_only_streams_without_permission(site: Site) -> None:
    """Without a restart. A stream of picks goes on: it is one HTTP request."""
    calls = {}
    channels = {who: site.channel("xds", who) for who in ("envoy", "spiffe")}
    channels["worker"] = site.channel("control", "worker")
    channels["gateway"] = site.channel("ext_proc", "gateway")
    for who, asked in (
        ("envoy", "discovery"),
        ("spiffe", "discovery"),
        ("worker", "fleet"),
        ("gateway", "picks"),
    ):
        _, method, message, _ = ASKED[asked]
        calls[who] = channels[who].stream_stream(method)(timeout=60)
        await calls[who].write(message)
        assert await calls[who].read() is not grpc.aio.EOF
    changed = site.with_roles(
        "roles: {envoys: ['spiffe://site.test/front/*'], workers: [other], agents: ['*.gpu.test'],"
        " operators: [operator]}"
    )
    for part in (site.xds, site.ext_proc):
        await part.apply(changed)
    for who in ("envoy", "worker"):
        with contextlib.suppress(grpc.aio.AioRpcError):
            while await calls[who].read() is not grpc.aio.EOF:
                pass
        assert await calls[who].code() is grpc.StatusCode.PERMISSION_DENIED
    for who, asked in (("envoy", "discovery"), ("worker", "fleet")):
        again = channels[who].stream_stream(ASKED[asked][1])(timeout=20)
        assert await again.code() is grpc.StatusCode.PERMISSION_DENIED, "on the connection from before"
    assert not calls["spiffe"].done()
    assert not calls["gateway"].done()
    await calls["gateway"].done_writing()
    while await calls["gateway"].read() is not grpc.aio.EOF:
        pass
    assert await calls["gateway"].code() is grpc.StatusCode.OK
    await site.xds.apply(site.settings)
    (service, method, message, _) = ASKED["discovery"]
    assert await code(site, service, "envoy", method, message) is grpc.StatusCode.OK
    for channel in channels.values():
        await channel.close()


async def test_a_name_that_gets_another_role_loses_its_streams(site: Site) -> None:
    """What a stream is sent goes by the role that it began with: keys, for one."""
    _, method, message, _ = ASKED["discovery"]
    channels = {who: site.channel("xds", who) for who in ("envoy", "spiffe")}
    calls = {}
    for who, channel in channels.items():
        calls[who] = channel.stream_stream(method)(timeout=60)
        await calls[who].write(message)
        assert await calls[who].read() is not grpc.aio.EOF
    await site.xds.apply(
        site.with_roles(
            "roles: {envoys: ['spiffe://site.test/front/*'], grpc_clients: [envoy], workers: [worker],"
            " agents: ['*.gpu.test'], operators: [operator]}"
        )
    )
    with contextlib.suppress(grpc.aio.AioRpcError):
        while await calls["envoy"].read() is not grpc.aio.EOF:
            pass
    assert "role has changed" in await calls["envoy"].details()
    assert not calls["spiffe"].done()
    for channel in channels.values():
        await channel.close()


async def test_without_roles_whoever_is_signed_may_do_all(
    tmp_path: Path, unused_tcp_port_factory: Any
) -> None:
    """As before there were roles: the log and `warmroute check` say so."""
    made = Site(tmp_path, [unused_tcp_port_factory() for _ in range(5)], "")
    async with running(made):
        assert await secret(made, "agent") == (tmp_path / "front.key").read_bytes()
        assert made.refusals("xds") == 0
        await made.xds.apply(made.with_roles(ROLES))
        service, method, message, _ = ASKED["discovery"]
        assert await code(made, service, "agent", method, message) is grpc.StatusCode.PERMISSION_DENIED
