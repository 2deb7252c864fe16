"""gRPC health of the service, under every name that gateways and their charts ask for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from ext_proc.server import HEALTH_NAMES
from fleet.store import FleetStore
from testing.certificates import Authority
from tests.ext_proc.transports import TRANSPORTS
from tests.ext_proc.worlds import pool_of, settings_with, view_of
from warmroute.demo.processes import free_port

if TYPE_CHECKING:
    from pathlib import Path

KINDS = health_pb2.HealthCheckResponse
NAMES = ("", *HEALTH_NAMES.readiness)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_every_name_follows_what_is_known_of_the_fleet(tmp_path: Path, transport: str) -> None:
    """NOT_SERVING until a fleet is known and from the drain on; the process is alive all the time."""
    store = FleetStore()
    settings = settings_with(
        ext_proc={"address": f"unix:{tmp_path}/s", "transport": transport},
        limits={"drain_seconds": 0.01},
        xds={"tick_seconds": 0.05},
    )
    server = ExtProcServer(settings, store, CollectorRegistry(), TracerProvider(), follow=False)
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel, asyncio.timeout(60):
        stub = health_pb2_grpc.HealthStub(channel)

        async def status(name: str) -> int:
            return int((await stub.Check(health_pb2.HealthCheckRequest(service=name))).status)

        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name)) for name in NAMES]
        assert {(await watch.read()).status for watch in watches} == {KINDS.NOT_SERVING}
        assert {await status(name) for name in NAMES} == {KINDS.NOT_SERVING}
        assert await status(HEALTH_NAMES.liveness) == KINDS.SERVING
        store.publish(view_of(pool_of()))
        assert {(await watch.read()).status for watch in watches} == {KINDS.SERVING}
        assert {await status(name) for name in NAMES} == {KINDS.SERVING}
        await server.drain()
        assert {(await watch.read()).status for watch in watches} == {KINDS.NOT_SERVING}
        assert await status(HEALTH_NAMES.liveness) == KINDS.SERVING
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="other"))
        assert (await unknown.read()).status == KINDS.SERVICE_UNKNOWN
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await status("other")
        assert error.value.code() is grpc.StatusCode.NOT_FOUND
        for watch in (*watches, unknown):
            watch.cancel()
    await server.stop()


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_gateway_without_a_certificate_is_served_over_tls(tmp_path: Path, transport: str) -> None:
    """Gateways speak TLS to a picker and show none; whoever may reach the port is the network's business."""
    authority, address = Authority(tmp_path), f"127.0.0.1:{free_port()}"
    issued = authority.issue("picker")
    files = {"certificate_file": str(issued.certificate_file), "key_file": str(issued.key_file)}
    ours = {**files, "ca_file": str(authority.file)}
    more = {"tls": {"ext_proc": files, "envoy": ours}, "allow_plaintext": True}
    assert settings_with(ext_proc={"address": "0.0.0.0:9002"}, **more).tls.ext_proc is not None
    carried = {"address": address, "transport": transport}
    settings = settings_with(ext_proc=carried, limits={"drain_seconds": 0.01}, **more)
    server = ExtProcServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), follow=False)
    await server.start()
    roots = grpc.ssl_channel_credentials(authority.file.read_bytes())
    named = (("grpc.ssl_target_name_override", "picker"),)
    async with grpc.aio.secure_channel(address, roots, options=named) as channel, asyncio.timeout(60):
        stub = health_pb2_grpc.HealthStub(channel)
        told = await stub.Check(health_pb2.HealthCheckRequest(service=HEALTH_NAMES.liveness))
    assert told.status == KINDS.SERVING
    await server.stop()
