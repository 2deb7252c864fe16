"""xds_server as a whole: ready after the first full sync, and not ready any more once it drains."""

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from fleet.endpoint import Membership
from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from fleet.identity import cached_by_identity
from fleet.names import TYPE_CLUSTER
from fleet.settings import parse_settings
from fleet.store import FleetStore
from xds_server import app
from xds_server.admin.operators import Operators
from xds_server.app import XdsServer
from xds_server.endpoints.keeper import EndpointKeeper
from xds_server.envoy.routes import routes

SETTINGS = """
pools: [{{name: p, endpoints: [{{address: "127.0.0.1:1"}}]}}]
listeners: [{{name: l, address: "127.0.0.1:9", pool: p}}]
xds: {{address: "unix:{path}/xds.sock", tick_seconds: 0.02}}
limits: {{drain_seconds: 0.5}}
signals: {{scrape_interval_seconds: 0.1, stale_after_seconds: 0.4}}
"""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_draining_stays_not_serving_while_ticks_go_on(tmp_path: Path) -> None:
    settings = parse_settings(SETTINGS.format(path=tmp_path))
    store = FleetStore()
    server = XdsServer(settings, store, CollectorRegistry(), TracerProvider(), control=False)
    await server.start()
    kinds = health_pb2.HealthCheckResponse
    try:
        async with grpc.aio.insecure_channel(settings.xds.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)

            async def status() -> int:
                return int((await health.Check(health_pb2.HealthCheckRequest())).status)

            await until(lambda: server.ready)
            async with asyncio.timeout(60):
                while await status() != kinds.SERVING:
                    await asyncio.sleep(0.01)
            await server.drain()
            for _ in range(3):
                await store.changed()
                assert await status() == kinds.NOT_SERVING
            assert not server.ready
    finally:
        await server.stop()


async def test_nack_ends_in_a_span_and_a_count(tmp_path: Path) -> None:
    settings, registry = parse_settings(SETTINGS.format(path=tmp_path)), CollectorRegistry()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    server = XdsServer(settings, FleetStore(), registry, provider, control=False)
    await server.start()
    try:
        async with grpc.aio.insecure_channel(settings.xds.address) as channel:
            call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
            request = discovery_pb2.DiscoveryRequest(type_url=TYPE_CLUSTER)
            request.node.id = "envoy"
            await call.write(request)
            request.response_nonce = (await call.read()).nonce
            request.error_detail.message = "no"
            await call.write(request)
            count = "warmroute_xds_nacks_total"
            await until(lambda: registry.get_sample_value(count, {"type": "Cluster"}) == 1)
            call.cancel()
    finally:
        await server.stop()
    (span,) = [span for span in exporter.get_finished_spans() if span.name == "warmroute.nack"]
    assert (span.attributes or {})["warmroute.node"] == "envoy"


STEADY = """
pools: [{{name: p, endpoints: [{{address: "{address}"}}], joining: {{probe: none}}}}]
listeners: [{{name: l, address: "127.0.0.1:9", pool: p}}]
signals: {{scrape_interval_seconds: 0.1, scrape_timeout_seconds: 60.0, stale_after_seconds: 0.9}}
xds: {{address: "unix:{path}/xds.sock", tick_seconds: 0.02}}
"""


class Steady:
    """Time that stands still while this process does: what grew old in a stall of the host proves nothing."""

    def __init__(self) -> None:
        self._now = self._read_at = time.monotonic()

    def __call__(self) -> float:
        read_at = time.monotonic()
        self._now += min(read_at - self._read_at, 0.05)
        self._read_at = read_at
        return self._now


async def test_unchanged_signals_do_not_grow_stale_for_pickers(tmp_path: Path) -> None:
    """Nothing changes, so nothing wakes a tick: the view in force is replaced before its loads are stale."""
    engine = web.Application()
    engine.router.add_get("/metrics", _page)
    runner = web.AppRunner(engine, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]
    settings = parse_settings(STEADY.format(address=f"{host}:{port}", path=tmp_path))
    store, clock = FleetStore(), Steady()
    arguments = settings, store, CollectorRegistry(), TracerProvider()
    server = XdsServer(*arguments, control=False, clock=clock)

    def queue() -> float | None:
        """What a worker in this process knows of the queue now."""
        if store.view is None:
            return None
        oldest = clock() - settings.signals.stale_after_seconds
        return store.view.signals.fresh(oldest).endpoint_values(0).get("queue_depth")

    await server.start()
    try:
        await until(lambda: queue() is not None)
        for _ in range(3):
            async with asyncio.timeout(60):
                before = store.view
                while store.view is before:
                    assert queue() == 3.0
                    await asyncio.sleep(0.01)
    finally:
        await server.stop()
        await runner.cleanup()


async def _page(_: web.Request) -> web.Response:
    return web.Response(text="vllm:num_requests_waiting 3\n")


async def test_override_does_not_enter_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(app, "Operators", partial(Operators, wall=lambda: now[0]))
    settings = parse_settings(
        SETTINGS.format(path=tmp_path).replace('"127.0.0.1:1"}', '"127.0.0.1:1"}, {address: "127.0.0.1:2"}')
    )

    async def start() -> XdsServer:
        server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
        await server.start()
        await until(lambda: server.ready)
        return server

    def weights(server: XdsServer) -> dict[str, int]:
        shown = server.views()["/api/v1/weights"]()["weights"]
        return {address: verdict["weight"] for address, verdict in shown.items()}

    server = await start()
    own = weights(server)
    update = server.actions()["/api/v1/update_weights"]
    await update({"weights": {"127.0.0.1:1": 9000}, "expires_seconds": 60.0})
    assert weights(server) == {**own, "127.0.0.1:1": 9000}
    await server.stop()
    now[0] += 60.1
    server = await start()
    try:
        assert weights(server) == own
    finally:
        await server.stop()


async def test_a_start_makes_routes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take long, and the doors are open when the first tick needs them."""
    made = 0

    def counted(*inputs: Any) -> Any:
        nonlocal made
        made += 1
        return routes(*inputs)

    monkeypatch.setattr("xds_server.envoy.build.routes", counted)
    settings = parse_settings(SETTINGS.format(path=tmp_path))
    server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    await server.start()
    try:
        assert made == 1
        await until(lambda: server.ready)
        assert made == 1
    finally:
        await server.stop()


async def test_a_reload_makes_routes_on_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those to models that only engines list."""
    on_loop = list[bool]()

    def recorded(*inputs: Any) -> Any:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return routes(*inputs)

    @cached_by_identity
    def listing(members: Membership) -> Membership:
        return Membership(
            tuple(
                dataclasses.replace(
                    pool, endpoints=tuple(dataclasses.replace(e, listed=("adapter",)) for e in pool.endpoints)
                )
                for pool in members.pools
            )
        )

    original = EndpointKeeper.membership
    monkeypatch.setattr(EndpointKeeper, "membership", lambda keeper: listing(original(keeper)))
    text = SETTINGS.replace("pool: p}}", "pools: [q, p]}}").replace(
        "pools: [{{", "pools: [{{name: q}}, {{", 1
    )
    settings = parse_settings(text.format(path=tmp_path))
    server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    await server.start()
    try:
        await until(lambda: server.ready)
        monkeypatch.setattr("xds_server.envoy.build.routes", recorded)
        before = server._snapshots.snapshot
        (listener,) = settings.listeners
        changed = listener.model_copy(update={"name": "m"})
        await server.apply(settings.model_copy(update={"listeners": (changed,)}))
        await until(lambda: server._snapshots.snapshot is not before)
        assert on_loop == [False]
    finally:
        await server.stop()
