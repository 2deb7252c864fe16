"""The discovery server against the real Envoy, in both variants, with resources made by hand."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from cryptography import x509
from prometheus_client import CollectorRegistry

from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.config.core.v3.config_source_pb2 import ApiVersion
from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.envoy_api.config.listener.v3 import listener_pb2
from fleet.envoy_api.config.route.v3 import route_pb2
from fleet.envoy_api.extensions.filters.http.router.v3 import router_pb2
from fleet.envoy_api.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2 as hcm_pb2,
)
from fleet.envoy_api.extensions.transport_sockets.tls.v3 import secret_pb2, tls_pb2
from fleet.lane.context import Services
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE, TYPE_SECRET
from testing.certificates import Authority, Issued
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import free_ports as first_of_free
from xds_server.discovery.ordering import Delays
from xds_server.discovery.server import DiscoveryService
from xds_server.doors import lane_server
from xds_server.envoy.bootstrap import bootstrap
from xds_server.snapshot.snapshot import Resource, Snapshot, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

BOTH = pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
SECONDS = 60.0
"""Reached by nothing that works."""


def free_ports(count: int) -> list[int]:
    first = first_of_free(count)
    return list(range(first, first + count))


def resource(name: str, type_url: str, message: Any) -> Resource:
    return Resource.of(name, type_url, message.SerializeToString(deterministic=True))


def cluster(name: str, seconds: int = 1) -> Resource:
    message = cluster_pb2.Cluster(name=name, type=cluster_pb2.Cluster.EDS)
    message.connect_timeout.seconds = seconds
    message.eds_cluster_config.eds_config.ads.SetInParent()
    message.eds_cluster_config.eds_config.resource_api_version = ApiVersion.V3
    return resource(name, TYPE_CLUSTER, message)


def assignment(name: str, weights: dict[int, int]) -> Resource:
    message = endpoint_pb2.ClusterLoadAssignment(cluster_name=name)
    group = message.endpoints.add()
    for port, weight in weights.items():
        entry = group.lb_endpoints.add()
        entry.endpoint.address.socket_address.address = "127.0.0.1"
        entry.endpoint.address.socket_address.port_value = port
        entry.load_balancing_weight.value = weight
    return resource(name, TYPE_ENDPOINT, message)


def http_listener(name: str, port: int) -> tuple[listener_pb2.Listener, hcm_pb2.HttpConnectionManager]:
    message = listener_pb2.Listener(name=name)
    message.address.socket_address.address = "127.0.0.1"
    message.address.socket_address.port_value = port
    manager = hcm_pb2.HttpConnectionManager(stat_prefix=name)
    manager.http_filters.add(name="envoy.filters.http.router").typed_config.Pack(router_pb2.Router())
    return message, manager


def finish(message: listener_pb2.Listener, manager: hcm_pb2.HttpConnectionManager) -> Resource:
    message.filter_chains.add().filters.add(name="http").typed_config.Pack(manager)
    return resource(message.name, TYPE_LISTENER, message)


def engine(port: int) -> Resource:
    """A listener that answers by itself, to stand for an engine."""
    message, manager = http_listener(f"engine-{port}", port)
    host = manager.route_config.virtual_hosts.add(name="all", domains=["*"])
    entry = host.routes.add()
    entry.match.prefix = "/"
    entry.direct_response.status = 200
    return finish(message, manager)


def front(port: int) -> Resource:
    """A listener whose routes come by RDS."""
    message, manager = http_listener("front", port)
    manager.rds.route_config_name = "front"
    manager.rds.config_source.ads.SetInParent()
    manager.rds.config_source.resource_api_version = ApiVersion.V3
    return finish(message, manager)


def route(target: str) -> Resource:
    message = route_pb2.RouteConfiguration(name="front")
    host = message.virtual_hosts.add(name="all", domains=["*"])
    entry = host.routes.add()
    entry.match.prefix = "/"
    entry.route.cluster = target
    return resource("front", TYPE_ROUTE, message)


def secure_listener(name: str, port: int) -> Resource:
    """A listener that answers by itself over TLS, with the secret of its name."""
    message, manager = http_listener(name, port)
    manager.route_config.virtual_hosts.add(name="all", domains=["*"])
    context = tls_pb2.DownstreamTlsContext()
    config = context.common_tls_context.tls_certificate_sds_secret_configs.add(name=name)
    config.sds_config.ads.SetInParent()
    config.sds_config.resource_api_version = ApiVersion.V3
    chain = message.filter_chains.add()
    chain.filters.add(name="http").typed_config.Pack(manager)
    chain.transport_socket.name = "envoy.transport_sockets.tls"
    chain.transport_socket.typed_config.Pack(context)
    return resource(name, TYPE_LISTENER, message)


def certificate(name: str, issued: Issued) -> Resource:
    message = secret_pb2.Secret(name=name)
    message.tls_certificate.certificate_chain.inline_bytes = issued.certificate_file.read_bytes()
    message.tls_certificate.private_key.inline_bytes = issued.key_file.read_bytes()
    return resource(name, TYPE_SECRET, message)


class Site:
    """A discovery server on a Unix socket; it can go and come back."""

    def __init__(self, path: str) -> None:
        self.address = f"unix:{path}"
        self.store = SnapshotStore()
        self.registry = CollectorRegistry()

    async def start(self) -> None:
        self.store, self.registry = SnapshotStore(), CollectorRegistry()
        self.service = DiscoveryService(self.store, self.registry, 100, delays=Delays(linger_seconds=0.2))
        services = Services()
        self.service.register(services)
        self.server = lane_server("xds", self.address, services)
        await self.server.start()

    def count(self, name: str, kind: str) -> float:
        return self.registry.get_sample_value(f"warmroute_xds_{name}_total", {"type": kind}) or 0.0


@contextlib.asynccontextmanager
async def running(tmp_path: Path, delta: bool) -> AsyncIterator[tuple[Site, EnvoyProcess]]:
    site = Site(str(tmp_path / "xds.sock"))
    await site.start()
    boot = bootstrap(ads_address=site.address, node_id="envoy-1", node_cluster="fleet", delta=delta)
    try:
        async with EnvoyProcess(boot) as envoy:
            yield site, envoy
    finally:
        await site.server.stop(0)


async def until(condition: Any) -> None:
    async with asyncio.timeout(SECONDS):
        while not await condition():
            await asyncio.sleep(0.02)


async def status_of(port: int, session: aiohttp.ClientSession) -> int:
    async with session.get(f"http://127.0.0.1:{port}/") as response:
        return response.status


@BOTH
async def test_envoy_takes_follows_refuses_and_reconnects(tmp_path: Path, delta: bool) -> None:
    one, two, port = free_ports(3)
    still = [engine(one), engine(two), front(port), route("pool")]

    def world(weights: tuple[int, int], seconds: int = 1) -> Snapshot:
        shares = dict(zip((one, two), weights, strict=True))
        return Snapshot.of([*still, cluster("pool", seconds), assignment("pool", shares)])

    async with running(tmp_path, delta) as (site, envoy), aiohttp.ClientSession() as session:

        async def has(*weights: int) -> bool:
            hosts = (await envoy.clusters()).get("pool", {})
            return [hosts.get(f"127.0.0.1:{p}", {}).get("weight") for p in (one, two)] == list(weights)

        # Before the first snapshot Envoy waits, and nobody has told it that there is nothing.
        await until(lambda: asyncio.sleep(0, bool(site.service.clients())))
        assert (await envoy.stats("cluster_manager.cds"))["cluster_manager.cds.update_success"] == 0
        site.store.set(world((70, 30)))
        await envoy.wait_ready(listeners=3)
        assert await has(70, 30)
        assert await status_of(port, session) == 200
        stats = await envoy.stats("cluster_manager.cds")
        assert stats["cluster_manager.cds.update_success"] == 1

        site.store.set(world((10, 90)))
        await until(lambda: has(10, 90))
        await until(lambda: asyncio.sleep(0, site.count("acks", "ClusterLoadAssignment") == 2))

        # A changed cluster warms, which takes its unchanged assignment once more, and no time-out.
        site.store.set(world((10, 90), seconds=2))

        async def warmed() -> bool:
            stats = await envoy.stats("cluster_manager")
            updated = stats["cluster_manager.cds.update_success"] == 2
            return updated and stats["cluster_manager.warming_clusters"] == 0

        await until(warmed)
        await until(lambda: asyncio.sleep(0, site.count("acks", "ClusterLoadAssignment") == 3))
        assert await has(10, 90)

        # Weight 0 is refused as a whole: the old weights stay, and nobody sends it again.
        site.store.set(world((0, 90), seconds=2))
        await until(lambda: asyncio.sleep(0, site.count("nacks", "ClusterLoadAssignment") == 1))
        (client,) = site.service.clients()
        (endpoints,) = [entry for entry in client.types if entry.type_url == TYPE_ENDPOINT]
        assert "oad" in endpoints.error
        assert await has(10, 90)
        pushed = site.count("pushes", "ClusterLoadAssignment")
        site.store.set(world((20, 80), seconds=2))
        await until(lambda: has(20, 80))
        assert site.count("pushes", "ClusterLoadAssignment") == pushed + 1

        # A new server that knows nothing yet takes nothing away; then the present state counts.
        await site.server.stop(0)
        await site.start()
        await until(lambda: asyncio.sleep(0, bool(site.service.clients())))
        assert await status_of(port, session) == 200
        site.store.set(world((40, 60), seconds=2))
        await until(lambda: has(40, 60))
        assert await status_of(port, session) == 200
        assert sum(site.count("nacks", kind) for kind in ("Cluster", "Listener", "RouteConfiguration")) == 0


@BOTH
async def test_routes_move_to_a_new_cluster_without_a_failed_request(tmp_path: Path, delta: bool) -> None:
    """Each move adds a cluster, points the routes to it and deletes the old one, in one snapshot."""
    one, port = free_ports(2)

    def world(name: str) -> Snapshot:
        return Snapshot.of(
            [engine(one), front(port), route(name), cluster(name), assignment(name, {one: 100})]
        )

    async with running(tmp_path, delta) as (site, envoy), aiohttp.ClientSession() as session:
        site.store.set(world("pool-0"))
        await envoy.wait_ready(listeners=2)
        statuses: list[int] = []
        moved = asyncio.Event()

        async def drive() -> None:
            while not moved.is_set():
                statuses.append(await status_of(port, session))

        drivers = [asyncio.create_task(drive()) for _ in range(4)]
        for number in range(1, 9):
            name = f"pool-{number}"
            site.store.set(world(name))

            async def alone(name: str = name) -> bool:
                return set(await envoy.clusters()) & {f"pool-{n}" for n in range(9)} == {name}

            await until(alone)
        moved.set()
        await asyncio.gather(*drivers)
        assert len(statuses) > 8
        assert set(statuses) == {200}
        assert sum(site.count("nacks", kind) for kind in ("Cluster", "Listener", "RouteConfiguration")) == 0


async def certificate_at(port: int) -> int | None:
    """Serial number of the certificate that a listener shows; None: no handshake."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (OSError, TimeoutError):
        return None
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(shown).serial_number


@BOTH
async def test_a_refused_secret_costs_only_its_own_listener(tmp_path: Path, delta: bool) -> None:
    """At an Envoy that has none yet too, and a good one mends it; nobody sends it again and again."""
    ports = dict(zip(("aa", "mm", "zz"), free_ports(3), strict=True))
    authority = Authority(tmp_path)
    issued = {name: authority.issue(name) for name in (*ports, "new")}
    weak = authority.issue("weak", rsa_bits=1024)
    listeners = [secure_listener(name, port) for name, port in ports.items()]

    def world(**secrets: Issued) -> Snapshot:
        return Snapshot.of([*listeners, *(certificate(name, held) for name, held in secrets.items())])

    good = {name: issued[name] for name in ports}

    async def shown(**wanted: Issued | None) -> bool:
        serials = {name: held and held.certificate.serial_number for name, held in wanted.items()}
        return serials == {name: await certificate_at(ports[name]) for name in serials}

    async with running(tmp_path, delta) as (site, _):
        site.store.set(world(**{**good, "mm": weak}))
        await until(lambda: shown(aa=issued["aa"], mm=None, zz=issued["zz"]))
        # Once alone; before that, if Envoy asked for it together with others, once with them.
        nacks = site.count("nacks", "Secret")
        assert 1 <= nacks <= 2
        (client,) = site.service.clients()
        (secrets,) = [entry for entry in client.types if entry.type_url == TYPE_SECRET]
        assert "2048" in secrets.error
        pushes = site.count("pushes", "Secret")
        site.store.set(world(aa=issued["new"], mm=weak, zz=issued["zz"]))
        await until(lambda: shown(aa=issued["new"], zz=issued["zz"]))
        assert site.count("pushes", "Secret") == pushes + 1
        site.store.set(world(**good))
        await until(lambda: shown(**good))
        assert site.count("pushes", "Secret") == pushes + 3
        assert site.count("nacks", "Secret") == nacks
        # A refused one in the place of a good one: the good one stays in force.
        site.store.set(world(aa=issued["new"], mm=weak, zz=issued["new"]))
        await until(lambda: shown(aa=issued["new"], mm=issued["mm"], zz=issued["new"]))
        assert site.count("nacks", "Secret") == nacks + 1


@BOTH
async def test_a_refused_assignment_costs_no_other_pool(tmp_path: Path, delta: bool) -> None:
    """Envoy refuses a response as a whole when one resource in it breaks a constraint."""
    one, port = free_ports(2)
    fixed = [engine(one), front(port), route("pool"), cluster("pool"), cluster("worse")]

    async with running(tmp_path, delta) as (site, envoy), aiohttp.ClientSession() as session:

        async def weighs(weight: int) -> bool:
            hosts = (await envoy.clusters()).get("pool", {})
            return bool(hosts.get(f"127.0.0.1:{one}", {}).get("weight") == weight)

        site.store.set(Snapshot.of([*fixed, assignment("pool", {one: 7}), assignment("worse", {one: 0})]))
        await until(lambda: weighs(7))
        await envoy.wait_ready(listeners=2)
        assert await status_of(port, session) == 200
        pushes = site.count("pushes", "ClusterLoadAssignment")
        site.store.set(Snapshot.of([*fixed, assignment("pool", {one: 8}), assignment("worse", {one: 0})]))
        await until(lambda: weighs(8))
        assert site.count("pushes", "ClusterLoadAssignment") == pushes + 1
        site.store.set(Snapshot.of([*fixed, assignment("pool", {one: 9}), assignment("worse", {one: 5})]))
        await until(lambda: weighs(9))
        await until(
            lambda: asyncio.sleep(0, not any(entry.error for entry in site.service.clients()[0].types))
        )
