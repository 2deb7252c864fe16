"""xds_server with sources of endpoints: what is unknown is not told, what was good is told again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client import CollectorRegistry

from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.errors import SnapshotError
from fleet.names import TYPE_ENDPOINT
from fleet.settings import Settings, parse_settings
from fleet.store import FleetStore
from xds_server import app
from xds_server.app import XdsServer
from xds_server.discovery.arrivals import MISSED_AFTER_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.io

A, B, C = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
"""Nobody listens on these ports."""


class World:
    """One server after another over one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "endpoints.yaml"
        self.running: Running | None = None
        self._skipped_seconds = 0.0

    def clock(self) -> float:
        return time.monotonic() + self._skipped_seconds

    def skip(self, seconds: float) -> None:
        """Let so much time have gone by."""
        self._skipped_seconds += seconds

    def settings(self, *static: str, pools: str = "", more: str = "") -> Settings:
        listed = ", ".join(f"{{address: '{address}'}}" for address in static)
        return parse_settings(
            f"pools: [{{name: p, endpoints: [{listed}], discovery: [{{file: {{path: {self.file}}}}}],"
            f" joining: {{drain_seconds: 300.0, probe_interval_seconds: 0.05}}}}{pools}]\n"
            "listeners: [{name: l, address: '127.0.0.1:9', pool: p}]\n"
            f"xds: {{address: 'unix:{self.folder}/xds.sock', tick_seconds: 0.02}}\n"
            f"signals: {{scrape_interval_seconds: 0.1}}\n{more}"
        )

    def discover(self, *addresses: str) -> None:
        beside = self.file.with_suffix(".new")
        beside.write_text("".join(f"- address: '{address}'\n" for address in addresses) or "[]\n")
        beside.replace(self.file)

    async def start(self, settings: Settings | None = None) -> Running:
        self.running = Running(settings or self.settings(), self.clock)
        await self.running.server.start()
        return self.running

    async def stop(self) -> None:
        if self.running is not None:
            await self.running.server.stop()
            self.running = None


class Running:
    """A server and its metrics."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self.registry, self.store = CollectorRegistry(), FleetStore()
        arguments = settings, self.store, self.registry, TracerProvider()
        self.server = XdsServer(*arguments, control=False, clock=clock)

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"warmroute_{name}", labels)

    def view(self, name: str) -> Any:
        return self.server.views()[f"/api/v1/{name}"]()

    @property
    def states(self) -> dict[str, tuple[str, str]]:
        return {e["address"]: (e["state"], e["source"]) for e in self.view("endpoints")["endpoints"]}

    @property
    def version(self) -> str:
        snapshot = self.server._snapshots.snapshot
        assert snapshot is not None
        return snapshot.version(TYPE_ENDPOINT)

    @property
    def pools(self) -> list[str]:
        """Pools in EDS."""
        snapshot = self.server._snapshots.snapshot
        assert snapshot is not None
        return sorted(snapshot.of_type(TYPE_ENDPOINT))

    def served(self, pool: str = "p") -> list[str]:
        """Addresses in EDS."""
        snapshot = self.server._snapshots.snapshot
        assert snapshot is not None
        body = snapshot.of_type(TYPE_ENDPOINT)[pool].body.value
        return sorted(
            f"127.0.0.1:{entry.endpoint.address.socket_address.port_value}"
            for group in endpoint_pb2.ClusterLoadAssignment.FromString(body).endpoints
            for entry in group.lb_endpoints
        )


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(app, "FIRST_SYNC_MOST_SECONDS", 0.2)
    made = World(tmp_path)
    yield made
    await made.stop()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def test_no_push_before_a_source_answers_even_an_empty_file(world: World) -> None:
    running = await world.start()
    await until(lambda: running.metric("unknown_pools") == 1)
    assert not running.server.ready
    assert running.store.view is None
    assert running.view("status")["unknown_pools"] == ["p"]
    world.discover()
    await until(lambda: running.server.ready)
    assert running.served() == []
    assert running.metric("unknown_pools") == 0


async def test_reload_with_an_unknown_pool_delays_no_other(world: World) -> None:
    world.discover(A)
    running = await world.start()
    await until(lambda: running.server.ready)
    strange = ", {name: q, discovery: [{file: {path: /nowhere/at/all}}]}"
    await running.server.apply(world.settings(pools=strange))
    world.discover(A, B)
    await until(lambda: running.metric("unknown_pools") == 1)
    await until(lambda: running.served() == [A, B])
    assert running.pools == ["p"]
    static_pool = f", {{name: q, endpoints: [{{address: '{C}'}}]}}"
    await running.server.apply(world.settings(pools=static_pool))
    await until(lambda: running.pools == ["p", "q"])
    assert running.served("q") == [C]
    assert running.metric("tick_faults_total") == 0


async def test_reload_that_cannot_be_built_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.discover(A)
    running = await world.start()
    await until(lambda: running.server.ready)

    def refuse(*_: object, **__: object) -> None:
        raise SnapshotError("cannot be built")

    with monkeypatch.context() as patch:
        patch.setattr(app, "build_snapshot", refuse)
        with pytest.raises(SnapshotError):
            await running.server.apply(world.settings(C))
    await asyncio.sleep(0.1)
    assert C not in running.states


async def test_leaving_endpoint_is_shown_sent_and_not_picked(world: World) -> None:
    world.discover(A, B, C)
    # Nobody listens here; those who drain must not make it more than half that look dead.
    running = await world.start(world.settings(more="weights: {stabiliser: {max_unhealthy_share: 0.0}}"))
    await until(lambda: running.server.ready)
    world.discover(A, B)
    await until(lambda: running.states.get(C) == ("leaving", f"file {world.file}"))
    await until(lambda: running.store.view is not None and C not in running.store.view.membership.by_address)
    assert running.served() == [A, B, C]
    world.skip(301.0)
    await until(lambda: C not in running.states)
    await until(lambda: running.served() == [A, B])


async def test_refusing_engine_and_missing_envoy_are_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    running = await world.start(world.settings(A))
    await until(lambda: running.server.ready)
    await until(lambda: all(entry["not_ready"] for entry in running.view("endpoints")["endpoints"]))
    (entry,) = running.view("endpoints")["endpoints"]
    assert entry["not_ready"].startswith(f"GET http://{A}/v1/models: connection refused; ")
    assert f"{A} is not ready: {entry['not_ready']}" in caplog.text
    assert running.view("status")["clients"] == 0
    world.skip(2 * MISSED_AFTER_SECONDS)
    await until(lambda: "no Envoy has connected to xds.address unix:" in caplog.text)


async def test_last_good_state_serves_without_discovery_and_engines(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.discover(A, B)
    first = await world.start()
    await until(lambda: first.server.ready)
    assert first.metric("serving_last_good") == 0
    version = first.version
    await world.stop()
    world.file.write_text("not: a list\n")
    second = await world.start()
    await until(lambda: second.server.ready)
    assert second.version == version
    assert second.metric("serving_last_good") == 1
    assert second.view("status")["serving_last_good"] == ["p"]
    assert second.states == {A: ("admitted", "last good"), B: ("admitted", "last good")}
    assert "served from the last good state" in caplog.text
    await world.stop()
    third = await world.start()
    await until(lambda: third.server.ready)
    assert third.version == version, "serving it does not wear it out"
    world.discover(A)
    await until(lambda: third.states.get(B) == ("leaving", "last good"))
    world.skip(301.0)
    await until(lambda: B not in third.states)
    assert third.states == {A: ("admitted", f"file {world.file}")}


async def test_endpoint_removed_from_settings_stays_away(world: World) -> None:
    world.discover(B)
    first = await world.start(world.settings(A, C))
    await until(lambda: first.server.ready)
    await world.stop()
    world.file.unlink()
    second = await world.start(world.settings(C))
    await until(lambda: second.server.ready)
    assert B in second.served()
    assert A not in second.states


async def test_a_damaged_file_leaves_it_as_without_one(world: World) -> None:
    world.discover(A)
    first = await world.start()
    await until(lambda: first.server.ready)
    await world.stop()
    world.file.unlink()
    saved = world.folder / "xds.sock.last-good"
    saved.write_bytes(saved.read_bytes()[:-2])
    second = await world.start()
    await until(lambda: second.metric("unknown_pools") == 1)
    assert not second.server.ready
    assert second.metric("last_good_refused_total", reason="damaged") == 1
