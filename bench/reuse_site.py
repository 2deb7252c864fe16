"""Engines that are an Envoy's own answers, and the discovery of clusters that differ in reuse.

Every cluster is the product's own; copies of it have Envoy's default limits, or one request a connection.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from ext_proc.app import ExtProcServer
from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.extensions.upstreams.http.v3 import http_protocol_options_pb2
from fleet.names import TYPE_CLUSTER
from fleet.service.serving import GrpcServer
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.store import FleetStore, FleetView
from warmroute.demo.processes import free_ports
from xds_server.discovery.server import DiscoveryService
from xds_server.envoy.bootstrap import bootstrap
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.snapshot import Resource, Snapshot, SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROTOCOLS: Final = ("http1", "h2")
OURS: Final = "ours"
DEFAULTS: Final = "defaults"
ONCE: Final = "once"
WAYS: Final = (OURS, DEFAULTS, ONCE)
"""As the product has it; with Envoy's defaults; with `max_requests_per_connection: 1`."""
_OPTIONS: Final = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TYPES: Final = "type.googleapis.com/envoy.extensions.filters"
_ANSWER: Final = json.dumps({"choices": [{"message": {"role": "assistant", "content": "yes"}}]})
_BODY_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Cell:
    """One protocol and one way of reuse; it has a listener and a cluster of its own."""

    protocol: str
    way: str

    @property
    def name(self) -> str:
        """The name of its listener and its cluster."""
        return f"{self.protocol}-{self.way}"


CELLS: Final = tuple(Cell(protocol, way) for protocol in PROTOCOLS for way in WAYS)


class Site:
    """Discovery and one ext_proc worker in this process; addresses of what the Envoys listen on."""

    def __init__(self, directory: Path, engines: int) -> None:
        first = free_ports(len(CELLS) * (engines + 1))
        ports = iter(range(first, first + len(CELLS) * (engines + 1)))
        self.addresses: Mapping[str, str] = {cell.name: f"127.0.0.1:{next(ports)}" for cell in CELLS}
        self.engines: Mapping[str, list[str]] = {
            cell.name: [f"127.0.0.1:{next(ports)}" for _ in range(engines)] for cell in CELLS
        }
        self._settings = parse_settings(json.dumps(self._written(directory)))
        store, view = SnapshotStore(), FleetView(membership(self._settings))
        fleet = FleetStore()
        fleet.publish(view)
        store.set(self._snapshot())
        self._grpc = GrpcServer("reuse", self._settings.xds.address)
        DiscoveryService(store, CollectorRegistry(), 10).register(self._grpc.server)
        self._ext_proc = ExtProcServer(
            self._settings, fleet, CollectorRegistry(), TracerProvider(), follow=False
        )

    async def start(self) -> None:
        """Serve."""
        await self._grpc.start()
        await self._ext_proc.start()

    async def stop(self) -> None:
        """End."""
        await self._ext_proc.stop()
        await self._grpc.stop(0)

    def bootstrap(self) -> dict[str, Any]:
        """The bootstrap of the Envoy that is measured."""
        return bootstrap(ads_address=self._settings.xds.address, node_id="reuse", node_cluster="bench")

    def engine_bootstrap(self) -> dict[str, Any]:
        """The bootstrap of the Envoy that stands for all engines."""
        addresses = [address for engine_addresses in self.engines.values() for address in engine_addresses]
        return {"static_resources": {"listeners": [engine_listener(address) for address in addresses]}}

    def _written(self, directory: Path) -> dict[str, Any]:
        return {
            "pools": [
                {
                    "name": cell.name,
                    "protocol": cell.protocol,
                    "endpoints": [{"address": address} for address in self.engines[cell.name]],
                }
                for cell in CELLS
            ],
            "listeners": [
                {"name": cell.name, "address": self.addresses[cell.name], "pool": cell.name} for cell in CELLS
            ],
            "xds": {"address": f"unix:{directory}/xds.sock"},
            "ext_proc": {"address": f"unix:{directory}/ext_proc.sock"},
            # The engines have no metrics pages here, and nothing reads Envoy's access log.
            "signals": {"access_log": False},
            "limits": {"drain_seconds": 0.5},
        }

    def _snapshot(self) -> Snapshot:
        made = build_snapshot(self._settings, membership(self._settings), {}, frozenset())
        ways = {cell.name: cell.way for cell in CELLS}
        changed = [
            Resource.of(name, TYPE_CLUSTER, _changed(resource.body.value, ways[name]))
            if name in ways
            else resource
            for name, resource in made.of_type(TYPE_CLUSTER).items()
        ]
        return made.replacing(TYPE_CLUSTER, changed)


def _changed(product: bytes, way: str) -> bytes:
    """The product's cluster, reused in another way."""
    cluster = cluster_pb2.Cluster.FromString(product)
    options = http_protocol_options_pb2.HttpProtocolOptions()
    packed = cluster.typed_extension_protocol_options[_OPTIONS]
    packed.Unpack(options)
    if way == DEFAULTS:
        options.ClearField("common_http_protocol_options")
    elif way == ONCE:
        options.common_http_protocol_options.max_requests_per_connection.value = 1
    packed.Pack(options)
    return bytes(cluster.SerializeToString(deterministic=True))


def engine_listener(address: str, pages: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a listener that answers as an engine does, with pages of its own at some paths."""
    host, _, port = address.rpartition(":")
    kind = {"header": {"key": "content-type", "value": "application/json"}}
    matches = [({"path": path}, page) for path, page in (pages or {}).items()]
    routes = [
        {
            "match": match,
            "direct_response": {"status": 200, "body": {"inline_string": text}},
            "response_headers_to_add": [kind],
        }
        for match, text in [*matches, ({"prefix": "/"}, _ANSWER)]
    ]
    # Answered before its end, a request would cost its connection.
    whole = {"@type": f"{_TYPES}.http.buffer.v3.Buffer", "max_request_bytes": _BODY_BYTES}
    manager = {
        "@type": f"{_TYPES}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "engine",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": routes}]},
        "http_filters": [
            {"name": "envoy.filters.http.buffer", "typed_config": whole},
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}.http.router.v3.Router"},
            },
        ],
    }
    http = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    return {
        "name": address,
        "address": {"socket_address": {"address": host, "port_value": int(port)}},
        "filter_chains": [{"filters": [http]}],
    }
