"""xds_server as a whole: ready after the first full sync, and not ready any more once it drains."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.settings import parse_settings
from fleet.store import FleetStore
from xds_server.app import XdsServer

SETTINGS = """
pools: [{{name: p, endpoints: [{{address: "127.0.0.1:1"}}]}}]
listeners: [{{name: l, address: "127.0.0.1:9", pool: p}}]
xds: {{address: "unix:{path}/xds.sock", tick_seconds: 0.02}}
limits: {{drain_seconds: 0.5}}
"""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_draining_stays_not_serving_while_ticks_go_on(tmp_path: Path) -> None:
    settings = parse_settings(SETTINGS.format(path=tmp_path))
    store = FleetStore()
    server = XdsServer(settings, store, CollectorRegistry(), TracerProvider(), control=False)
    await server.start()
    kinds = health_pb2.HealthCheckResponse
    async with grpc.aio.insecure_channel(settings.xds.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def status() -> int:
            return int((await health.Check(health_pb2.HealthCheckRequest())).status)

        await until(lambda: server.ready)
        async with asyncio.timeout(10):
            while await status() != kinds.SERVING:
                await asyncio.sleep(0.01)
        await server.drain()
        for _ in range(3):
            await store.changed()
            assert await status() == kinds.NOT_SERVING
        assert not server.ready
    await server.stop()
