"""Two clients in two zones, over real gRPC: each gets its own weights, and both follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from fleet.settings import parse_settings
from fleet.settings.membership import membership
from fleet.store import FleetStore
from xds_server.app import XdsServer
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.groups import group_snapshots

if TYPE_CHECKING:
    from pathlib import Path

    from xds_server.snapshot.snapshot import SnapshotStore

pytestmark = pytest.mark.io

A, B = "127.0.0.1:1", "127.0.0.1:2"
SETTINGS = f"""
pools:
  - name: llm
    joining: {{probe: none}}
    endpoints:
      - {{address: "{A}", locality: {{region: eu, zone: a}}}}
      - {{address: "{B}", locality: {{region: eu, zone: b}}}}
listeners: [{{name: front, address: "127.0.0.1:9", pool: llm}}]
xds: {{address: "unix:/PATH/xds.sock", tick_seconds: 0.02}}
"""


def put(store: SnapshotStore, weights: dict[str, int]) -> None:
    settings = parse_settings(SETTINGS)
    endpoints = (membership(settings), weights, frozenset[str]())
    snapshot = build_snapshot(settings, *endpoints)
    store.set(snapshot, group_snapshots(snapshot, settings.weights.topology, *endpoints))


def stand(client: Any, zone: str) -> Any:
    """Let a client's first message tell where it stands."""
    ask = client.peer._request

    def request(type_url: str, lane: str) -> Any:
        made = ask(type_url, lane)
        if made.node.id:
            made.node.locality.region, made.node.locality.zone = "eu", zone
        return made

    client.peer._request = request
    return client


def weights_of(received: Any) -> list[int]:
    message = endpoint_pb2.ClusterLoadAssignment.FromString(received.resources["llm"])
    return [entry.load_balancing_weight.value for group in message.endpoints for entry in group.lb_endpoints]


@pytest.mark.parametrize("variant", ["sotw", "delta"])
@pytest.mark.parametrize("service", ["ads", "separate"])
async def test_two_zones_get_different_weights_and_both_follow(
    serve: Any, variant: str, service: str
) -> None:
    running = await serve()
    clients = [
        stand(running.connect(variant, service, f"in-{zone}" if zone else "anywhere"), zone)
        for zone in ("a", "b", "")
    ]
    for client in clients:
        await client.ask(TYPE_ENDPOINT, ("llm",))
    for weights, expected in (
        ({A: 1000, B: 500}, [[1000, 450], [900, 500], [1000, 500]]),
        ({A: 100, B: 2000}, [[100, 1800], [90, 2000], [100, 2000]]),
    ):
        put(running.store, weights)
        received = [await client.receive(TYPE_ENDPOINT) for client in clients]
        assert [weights_of(entry) for entry in received] == expected
        if variant == "sotw":
            assert len({entry.version for entry in received}) == 3
    assert running.value("faults_total") == 0


async def test_server_sends_near_weights(serve: Any, tmp_path: Path) -> None:
    """Nothing answers at the addresses, so weights are equal but for the factor."""
    settings = parse_settings(SETTINGS.replace("/PATH", str(tmp_path)))
    server = XdsServer(settings, FleetStore(), CollectorRegistry(), TracerProvider(), control=False)
    running = await serve()
    running.target = settings.xds.address
    await server.start()
    try:
        clients = [stand(running.connect("sotw", "ads", zone), zone) for zone in ("a", "b")]
        for client, expected in zip(clients, ([1000, 900], [900, 1000]), strict=True):
            await client.ask(TYPE_CLUSTER)
            await client.receive(TYPE_CLUSTER)
            await client.ask(TYPE_ENDPOINT, ("llm",))
            assert weights_of(await client.receive(TYPE_ENDPOINT)) == expected
            client.cancel()
    finally:
        await server.stop()
