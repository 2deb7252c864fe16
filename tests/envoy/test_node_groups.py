"""Real Envoys in two zones, started with the product's own bootstrap, see weights by nearness."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import grpc
import pytest
import yaml
from prometheus_client import CollectorRegistry

from fleet.service.serving import server_options
from fleet.settings import load_settings
from fleet.settings.membership import membership
from warmroute.cli.main import main
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import free_port
from xds_server.discovery.server import DiscoveryService
from xds_server.envoy.build import build_snapshot
from xds_server.snapshot.groups import group_snapshots
from xds_server.snapshot.snapshot import SnapshotStore

if TYPE_CHECKING:
    from pathlib import Path

    from fleet.settings import Settings

A, B = "127.0.0.1:8001", "127.0.0.1:8002"
SETTINGS = f"""
pools:
  - name: llm
    endpoints:
      - {{address: "{A}", locality: {{region: eu, zone: a}}}}
      - {{address: "{B}", locality: {{region: eu, zone: b}}}}
listeners: [{{name: front, address: "127.0.0.1:PORT", pool: llm}}]
xds: {{address: "unix:PATH/xds.sock"}}
"""


def put(store: SnapshotStore, settings: Settings, weights: dict[str, int]) -> None:
    told = (membership(settings), weights, frozenset[str]())
    snapshot = build_snapshot(settings, *told)
    store.set(snapshot, group_snapshots(snapshot, settings.weights.topology, *told))


async def sees(envoy: EnvoyProcess, weights: dict[str, int]) -> None:
    async with asyncio.timeout(60):
        while True:
            hosts = (await envoy.clusters()).get("llm", {})
            if {address: host.get("weight") for address, host in hosts.items()} == weights:
                return
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("delta", [False, True], ids=["sotw", "delta"])
async def test_envoys_in_two_zones_see_factored_weights_and_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], delta: bool
) -> None:
    text = SETTINGS.replace("PATH", str(tmp_path)).replace("PORT", str(free_port()))
    path = tmp_path / "warmroute.yaml"
    path.write_text(text)
    settings = load_settings(path)
    store = SnapshotStore()
    server = grpc.aio.server(options=server_options())
    DiscoveryService(store, CollectorRegistry(), 100).register(server)
    server.add_insecure_port(settings.xds.address)
    await server.start()
    try:
        async with contextlib.AsyncExitStack() as stack:
            envoys = {}
            for zone in ("a", "b"):
                place = ["--region", "eu", "--zone", zone, *(["--delta"] if delta else [])]
                assert main(["bootstrap", str(path), "--node-id", f"in-{zone}", *place]) == 0
                made = yaml.safe_load(capsys.readouterr().out)
                envoys[zone] = await stack.enter_async_context(EnvoyProcess(made))
            for weights, in_a, in_b in (
                ({A: 1000, B: 500}, {A: 1000, B: 450}, {A: 900, B: 500}),
                ({A: 10, B: 2000}, {A: 10, B: 1800}, {A: 9, B: 2000}),
            ):
                put(store, settings, weights)
                await asyncio.gather(sees(envoys["a"], in_a), sees(envoys["b"], in_b))
    finally:
        await server.stop(0)
