"""Why each ext_proc worker has an address of its own: how the real Envoy spreads streams over processes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest

from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import free_port, free_ports

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

WORKERS = 4
REQUESTS = 200
_TYPES = "type.googleapis.com/envoy.extensions"


class Counting(pb_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """A worker that only counts the streams it gets."""

    def __init__(self) -> None:
        self.streams = 0

    async def Process(self, requests: Any, context: Any) -> Any:  # noqa: N802
        self.streams += 1
        async for _ in requests:
            response = pb.ProcessingResponse()
            response.request_headers.response.SetInParent()
            yield response


@contextlib.asynccontextmanager
async def listening(ports: Sequence[int]) -> AsyncIterator[list[Counting]]:
    """One worker a port; equal ports share it by SO_REUSEPORT, as processes would."""
    workers, servers = [Counting() for _ in ports], []
    for worker, port in zip(workers, ports, strict=True):
        server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
        pb_grpc.add_ExternalProcessorServicer_to_server(worker, server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        servers.append(server)
    try:
        yield workers
    finally:
        await asyncio.gather(*(server.stop(None) for server in servers))


def bootstrap(listener: int, ports: Sequence[int]) -> dict[str, Any]:
    """Envoy with ext_proc for the request's headers, and an answer of its own."""

    def address(port: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    ext_proc = {
        "@type": f"{_TYPES}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "workers"}},
        "message_timeout": "5s",
        "processing_mode": {"response_header_mode": "SKIP"},
    }
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200}}
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {"name": "ext_proc", "typed_config": ext_proc},
            {"name": "router", "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"}},
        ],
    }
    http2 = {
        "@type": f"{_TYPES}.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    listed = [{"endpoint": {"address": address(port)}} for port in sorted(set(ports))]
    return {
        "static_resources": {
            "listeners": [
                {
                    "name": "front",
                    "address": address(listener),
                    "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
                }
            ],
            "clusters": [
                {
                    "name": "workers",
                    "type": "STATIC",
                    "load_assignment": {"cluster_name": "workers", "endpoints": [{"lb_endpoints": listed}]},
                    "typed_extension_protocol_options": {
                        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2
                    },
                }
            ],
        }
    }


async def streams(ports: Sequence[int], concurrency: int) -> list[int]:
    """How many streams each worker gets of many requests over many connections."""
    listener = free_port()
    async with (
        listening(ports) as workers,
        EnvoyProcess(bootstrap(listener, ports), concurrency=concurrency) as envoy,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=8)) as client,
    ):
        await envoy.wait_ready()

        async def get() -> int:
            async with client.get(f"http://127.0.0.1:{listener}/") as response:
                return response.status

        statuses = await asyncio.gather(*(get() for _ in range(REQUESTS)))
        assert set(statuses) == {200}
        return sorted(worker.streams for worker in workers)


async def test_one_port_ties_each_connection_to_one_worker() -> None:
    """With as many worker processes as there are, at most one for each of Envoy's threads gets anything."""
    concurrency = 2
    counts = await streams([free_ports(1)] * WORKERS, concurrency)
    assert sum(counts) == REQUESTS
    assert sum(count > 0 for count in counts) <= concurrency < WORKERS


async def test_on_addresses_of_their_own_workers_get_equal_shares() -> None:
    first = free_ports(WORKERS)
    counts = await streams(range(first, first + WORKERS), 2)
    assert counts == [pytest.approx(REQUESTS / WORKERS, abs=4)] * WORKERS
