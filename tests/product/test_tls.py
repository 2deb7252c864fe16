"""The services on hosts of their own: followers, GPU agents, gRPC clients and parents of workers over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.service.admin import AdminServer, Query
from fleet.service.admin_access import Access
from fleet.service.tls import Certificates, Files
from fleet.settings import PeerTlsSettings, parse_settings
from fleet.store import FleetStore
from testing.certificates import Authority
from warmroute.cli.main import main
from warmroute.cli.worker_admin import WorkerAdmins
from warmroute.gpu_agent.app import AgentConfig, serve
from xds_server.app import XdsServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

TEXT = """
pools:
  - name: chat
    joining: {{probe: none}}
    endpoints: [{{address: "127.0.0.1:{engine}"}}]
listeners: [{{name: llm, address: "127.0.0.1:10000", pool: chat}}]
xds: {{address: "localhost:{xds}", state_path: ""}}
ext_proc: {{address: "unix:{at}/ext_proc"}}
control: {{address: "127.0.0.1:{control}"}}
tls:
  xds:
    certificate_file: {at}/warmroute.crt
    key_file: {at}/warmroute.key
    client_ca_file: {at}/test-ca.crt
  control:
    certificate_file: {at}/warmroute.crt
    key_file: {at}/warmroute.key
    client_ca_file: {at}/test-ca.crt
  envoy: {{certificate_file: {at}/client.crt, key_file: {at}/client.key, ca_file: {at}/test-ca.crt}}
  workers: {{certificate_file: {at}/client.crt, key_file: {at}/client.key, ca_file: {at}/test-ca.crt}}
"""


class Site:
    """xds_server with TLS on discovery and on the control stream; certificates of one authority."""

    def __init__(self, directory: Path, ports: Mapping[str, int]) -> None:
        self.directory = directory
        self.ports = ports
        self.issue()
        self.file = directory / "warmroute.yaml"
        self.file.write_text(TEXT.format(at=directory, **ports))
        self.settings = parse_settings(self.file.read_text())
        self.certificates = Certificates()
        self.xds = self.new_xds()

    def issue(self) -> None:
        """Replace the authority with all that it has signed."""
        self.authority = Authority(self.directory)
        self.authority.issue("warmroute", "warmroute", "localhost")
        self.authority.issue("client")

    def new_xds(self) -> XdsServer:
        given = self.settings, FleetStore(), CollectorRegistry(), TracerProvider()
        return XdsServer(*given, control=True, certificates=self.certificates)

    def peer(self, authority: Authority | None = None, name: str = "warmroute") -> PeerTlsSettings:
        """What a client shows and expects; of another authority, it is a stranger."""
        names = "client"
        if authority is not None:
            names = "stranger"
            authority.issue(names)
        at = self.directory
        return PeerTlsSettings(
            certificate_file=f"{at}/{names}.crt",
            key_file=f"{at}/{names}.key",
            ca_file=f"{at}/test-ca.crt",
            server_name=name,
        )


@pytest_asyncio.fixture
async def site(tmp_path: Path, unused_tcp_port_factory: Any) -> AsyncIterator[Site]:
    names = ("engine", "xds", "control", "page")
    made = Site(tmp_path, {name: unused_tcp_port_factory() for name in names})
    await made.xds.start()
    try:
        yield made
    finally:
        await made.xds.stop()


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(15):
        while True:
            held = condition()
            if asyncio.iscoroutine(held):
                held = await held
            if held:
                return
            await asyncio.sleep(0.02)


class Follower:
    """An ext_proc that runs apart."""

    def __init__(self, site: Site, peer: PeerTlsSettings) -> None:
        self.registry = CollectorRegistry()
        self.certificates = Certificates()
        settings = site.settings.model_copy(
            update={"tls": site.settings.tls.model_copy(update={"workers": peer})}
        )
        given = settings, FleetStore(), self.registry, TracerProvider()
        self.server = ExtProcServer(*given, follow=True, certificates=self.certificates)

    def value(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"warmroute_follower_{name}")


async def test_worker_follows_over_mutual_tls_and_a_new_authority(site: Site) -> None:
    """The stream that is open goes on; the next one has the new certificates on both sides."""
    follower = Follower(site, site.peer())
    await follower.server.start()
    try:
        await until(lambda: follower.value("connected"))
        site.issue()
        await site.certificates.look()
        await follower.certificates.look()
        assert follower.value("connected") == 1
        assert follower.value("breaks_total") == 0
        await site.xds.stop()
        await until(lambda: follower.value("connected") == 0)
        site.xds = site.new_xds()
        await site.xds.start()
        await until(lambda: follower.value("connected"))
    finally:
        await follower.server.stop()


@pytest.mark.parametrize("who", ["stranger", "name"])
async def test_a_worker_that_is_a_stranger_or_finds_one_hears_nothing(
    site: Site, tmp_path: Path, who: str
) -> None:
    stranger = Authority(tmp_path, "stranger") if who == "stranger" else None
    follower = Follower(site, site.peer(stranger, "warmroute" if stranger else "somebody"))
    await follower.server.start()
    try:
        await until(lambda: (follower.value("breaks_total") or 0) >= 2)
        assert follower.value("connected") == 0
    finally:
        await follower.server.stop()


async def connected(site: Site) -> float | None:
    """What the GPU agent's page says of its stream; None: there is no page yet."""
    url = f"http://127.0.0.1:{site.ports['page']}/metrics"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            lines = (await response.text()).splitlines()
    except aiohttp.ClientError:
        return None
    return next(float(line.split()[1]) for line in lines if line.startswith("warmroute_gpu_agent_connected "))


@pytest.mark.parametrize("stranger", [False, True])
async def test_a_gpu_agent_reports_over_mutual_tls(site: Site, tmp_path: Path, *, stranger: bool) -> None:
    """To the control stream's address, which serves it too where TLS is spoken."""
    own = site.peer(Authority(tmp_path, "stranger") if stranger else None)
    listen, control = f"127.0.0.1:{site.ports['page']}", site.settings.control.address
    agent = asyncio.create_task(serve(AgentConfig("node", listen, control, 0.1, own)))
    try:
        if not stranger:
            await until(lambda: _is_one(site))
            return
        await until(lambda: _breaks(site))
        assert await connected(site) == 0
    finally:
        agent.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await agent


async def _is_one(site: Site) -> bool:
    return await connected(site) == 1


async def _breaks(site: Site) -> bool:
    url = f"http://127.0.0.1:{site.ports['page']}/metrics"
    try:
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            lines = (await response.text()).splitlines()
    except aiohttp.ClientError:
        return False
    name = "warmroute_gpu_agent_report_breaks_total "
    return any(float(line.split()[1]) >= 2 for line in lines if line.startswith(name))


CLIENT = """
import sys
import grpc
with grpc.insecure_channel("xds:///chat") as channel:
    who = channel.unary_unary("/test.Engine/Who", request_serializer=None, response_deserializer=None)
    print(who(b"", timeout=20, wait_for_ready=True).decode())
"""


async def test_grpcs_own_client_finds_engines_over_mutual_tls(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what `warmroute bootstrap --grpc` prints. gRPC checks the name that it dials."""

    async def who(_: bytes, context: Any) -> bytes:
        return b"the engine"

    engine = grpc.aio.server()
    handlers = {"Who": grpc.unary_unary_rpc_method_handler(who)}
    engine.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Engine", handlers),))
    engine.add_insecure_port(f"127.0.0.1:{site.ports['engine']}")
    await engine.start()
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["bootstrap", str(site.file), "--grpc"]) == 0
    told = capsys.readouterr().out
    assert json.loads(told)["xds_servers"][0]["channel_creds"][0]["type"] == "tls"
    file = site.directory / "bootstrap.json"
    file.write_text(told)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT), stdout=-1, env={**os.environ, "GRPC_XDS_BOOTSTRAP": str(file)}
    )
    answer, _ = await asyncio.wait_for(process.communicate(), 40)
    assert answer.decode().strip() == "the engine"
    await engine.stop(0)


async def test_parent_identifies_workers_by_their_certificate(tmp_path: Path, unused_tcp_port: int) -> None:
    """Whatever names it carries, it is the parent's own; both see a new one at moments of their own."""
    authority = Authority(tmp_path)
    authority.issue("admin")
    files = Files(f"{tmp_path}/admin.crt", f"{tmp_path}/admin.key")
    parents, workers = Certificates(), Certificates()
    held, shown = (entry.watch("admin", "tls.admin", files) for entry in (parents, workers))
    address = f"127.0.0.1:{unused_tcp_port}"

    def worker() -> AdminServer:
        queries = {"/api/v1/decisions": [lambda query: {"picks": [{"at": "1"}]}]}
        access = Access(address, tls=shown)
        return AdminServer(access, CollectorRegistry(), lambda: True, {}, queries=queries)

    async def told(at: float) -> bool:
        """Whether a parent that connects anew hears the worker."""
        assert parent._pins is not None
        parent._pins._clock = lambda: at
        async with aiohttp.ClientSession() as parent._session:
            return bool((await parent.decisions(Query()))["picks"])

    parent = WorkerAdmins([address], None, CollectorRegistry(), held)
    admin = worker()
    await admin.start()
    try:
        assert await told(0.0)
        authority.issue("admin")
        await parents.look()
        assert await told(1.0), "the worker still shows the one before"
        await workers.look()
        assert await told(2.0)
        assert await told(60.0)
        stranger = Authority(tmp_path, "stranger")
        stranger.issue("admin")
        await workers.look()
        assert not await told(61.0), "a certificate that is not the parent's"
    finally:
        await admin.stop()


async def test_a_parent_keeps_its_connections_to_workers(tmp_path: Path, unused_tcp_port: int) -> None:
    """It asks several times a second: a handshake for each would be a waste."""
    Authority(tmp_path).issue("admin")
    held = Certificates().watch("admin", "tls.admin", Files(f"{tmp_path}/admin.crt", f"{tmp_path}/admin.key"))
    address = f"127.0.0.1:{unused_tcp_port}"
    admin = AdminServer(Access(address, tls=held), CollectorRegistry(), lambda: True, {})
    await admin.start()
    parent = WorkerAdmins([address], None, CollectorRegistry(), held)
    try:
        async with aiohttp.ClientSession() as parent._session:
            for _ in range(5):
                assert await parent._is_ready(address)
            connector = parent._session.connector
            assert connector is not None
            assert sum(len(kept) for kept in connector._conns.values()) == 1
    finally:
        await admin.stop()
