"""The limits of the settings reach the parts that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from aiohttp import web
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.envoy_api.service.discovery.v3 import ads_pb2_grpc, discovery_pb2
from fleet.lane.server import LaneServer
from fleet.names import TYPE_CLUSTER
from fleet.settings import parse_settings
from fleet.store import FleetStore
from xds_server import app as app_module
from xds_server.app import XdsServer
from xds_server.envoy.build import build_snapshot

if TYPE_CHECKING:
    from pathlib import Path


async def started(folder: Path, engine: str, limits: str) -> tuple[XdsServer, CollectorRegistry]:
    registry = CollectorRegistry()
    settings = parse_settings(
        f"pools: [{{name: p, endpoints: [{{address: '{engine}'}}], joining: {{probe: none}}}}]\n"
        "listeners: [{name: l, address: '127.0.0.1:9', pool: p}]\n"
        f"xds: {{address: 'unix:{folder}/xds.sock', state_path: ''}}\n"
        f"limits: {limits}\n"
    )
    server = XdsServer(settings, FleetStore(), registry, TracerProvider(), control=False)
    await server.start()
    return server, registry


async def first_answer(channel: Any) -> Any:
    call = ads_pb2_grpc.AggregatedDiscoveryServiceStub(channel).StreamAggregatedResources()
    request = discovery_pb2.DiscoveryRequest(type_url=TYPE_CLUSTER)
    request.node.id = "e"
    await call.write(request)
    assert await call.read() is not grpc.aio.EOF
    return call


async def test_one_stream_more_than_the_limit_is_refused(tmp_path: Path) -> None:
    server, _ = await started(tmp_path, "127.0.0.1:1", "{xds_streams: 1}")
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/xds.sock") as channel:
        call = await first_answer(channel)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await first_answer(channel)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        call.cancel()
    await server.stop()


async def test_first_messages_are_built_before_the_bind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protobuf takes long over them, and a client that is let in would wait."""
    order: list[str] = []
    build, bind = build_snapshot, LaneServer.start

    def noting(*args: Any, **named: Any) -> Any:
        order.append("built")
        return build(*args, **named)

    async def binding(self: LaneServer) -> None:
        order.append("bound")
        await bind(self)

    monkeypatch.setattr(app_module, "build_snapshot", noting)
    monkeypatch.setattr(LaneServer, "start", binding)
    server, _ = await started(tmp_path, "127.0.0.1:1", "{}")
    assert order[:2] == ["built", "bound"]
    await server.stop()


@pytest.mark.parametrize(("limit", "refused"), [(1024, True), (65_536, False)])
async def test_a_metrics_page_beyond_the_limit_is_not_read(
    tmp_path: Path, unused_tcp_port: int, limit: int, refused: bool
) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="vllm:num_requests_waiting 7\n" + "# filler\n" * 1000)

    application = web.Application()
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", unused_tcp_port).start()
    server, registry = await started(
        tmp_path, f"127.0.0.1:{unused_tcp_port}", f"{{metrics_page_bytes: {limit}}}"
    )
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/xds.sock") as channel:
        await first_answer(channel)  # comes after the first full sync
    failures = sum(
        sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "warmroute_scrape_failures_total"
    )
    assert (failures > 0) is refused
    await server.stop()
    await runner.cleanup()
