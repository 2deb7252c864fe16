"""Stopping: at any moment, with many streams open, and of one Envoy of two that have the same name."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bench.xds_client import XdsClient
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from fleet.settings import parse_settings
from tests.product.conftest import FAST, LIMIT_SECONDS, until
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.envoy import EnvoyProcess
from warmroute.demo.processes import Child, warmroute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

CLIENTS = 50
DRAIN_SECONDS = float(FAST["limits"]["drain_seconds"])
POOL = "engines"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster(ClusterSettings("apart", 2, EngineSettings(speed_up=50), FAST)) as cluster:
        yield cluster


async def clients(cluster: Cluster) -> list[dict[str, Any]]:
    told = await cluster.get_json(cluster.admin_address, "/api/v1/clients")
    listed: list[dict[str, Any]] = told["clients"] if told else []
    return listed


async def streams(cluster: Cluster, count: int) -> bool:
    """Whether there is one client, with so many streams."""
    return [client["streams"] for client in await clients(cluster)] == [count]


async def hosts(envoy: EnvoyProcess) -> set[str]:
    return set((await envoy.clusters())[POOL])


async def restarted(cluster: Cluster) -> None:
    cluster.start("xds", warmroute("xds", str(cluster.settings_path)))
    await cluster.wait_answer("xds", cluster.admin_address, "/readyz", LIMIT_SECONDS)


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_leaving_envoy_harms_no_successor_of_its_name(cluster: Cluster) -> None:
    """As in a hot restart: both run for a while, then the old one's streams end."""
    made = await cluster.bootstrap()
    async with EnvoyProcess(made) as old:
        await old.wait_ready()
        async with EnvoyProcess(made) as new:
            await new.wait_ready()
            await until(lambda: streams(cluster, 3))  # all have one name
            await old.stop()
            await until(lambda: streams(cluster, 2))
            gone = cluster.engines[-1]
            cluster.pool_overrides["endpoints"] = [{"address": address} for address in cluster.engines[:-1]]
            cluster.pool_overrides["joining"] = {"drain_seconds": 0.5}
            cluster.write_settings()
            try:

                async def followed() -> bool:
                    return gone not in await hosts(new)

                await until(followed)
                assert await cluster.get(cluster.address, "/v1/models", LIMIT_SECONDS) is not None
            finally:
                del cluster.pool_overrides["endpoints"]
                cluster.write_settings()

                async def whole() -> bool:
                    assert cluster.envoy is not None
                    return gone in await hosts(new) and gone in await hosts(cluster.envoy)

                await until(whole)


async def test_it_ends_in_time_however_many_streams_are_open(cluster: Cluster) -> None:
    """Quiet streams have no end of their own; requests go on meanwhile, and Envoy is back afterwards."""
    names = {TYPE_CLUSTER: (), TYPE_ENDPOINT: (POOL,)}
    address = f"unix:{cluster.directory}/xds.sock"
    held = [XdsClient(f"c{number}", address, "sotw", names, lambda _: None) for number in range(CLIENTS)]
    statuses: set[bool] = set()
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            await asyncio.gather(*(client.synced.wait() for client in held))
        child = cluster.children["xds"]
        began = time.monotonic()
        child.signal(signal.SIGTERM)
        while child.running:
            statuses.add(await cluster.get(cluster.address, "/v1/models", LIMIT_SECONDS) is not None)
            assert time.monotonic() < began + 30 * DRAIN_SECONDS
        assert "Traceback" not in child.tail()
    finally:
        await asyncio.gather(*(client.close() for client in held))
    assert statuses == {True}
    await restarted(cluster)

    async def back() -> bool:
        return bool(await clients(cluster))

    await until(back)


@pytest.mark.parametrize("verb", ["serve", "xds", "ext-proc"])
async def test_a_signal_at_any_moment_of_the_start_ends_it(
    cluster: Cluster, tmp_path: Path, verb: str
) -> None:
    """Early, before anything listens to signals, in the midst, and just when it is ready."""
    settings = tmp_path / "warmroute.yaml"
    text = cluster.settings_path.read_text()
    for socket in ("xds.sock", "ext_proc.sock", "control.sock"):
        text = text.replace(f"{cluster.directory}/{socket}", f"{tmp_path}/{socket}")
    for address in (cluster.admin_address, cluster.ext_proc_admin_address):
        text = text.replace(address, "''")
    parse_settings(text)
    settings.write_text(text)
    for number, delay in enumerate((0.05, 0.8, None)):
        child = Child(f"early-{number}", warmroute(verb, str(settings)), tmp_path)
        try:
            if delay is None:
                await child.wait_for(lambda child=child: " listens on " in child.log.read_text())  # type: ignore[misc]
            else:
                await asyncio.sleep(delay)
            child.signal(signal.SIGTERM)
            await child.wait_for_end(30 * DRAIN_SECONDS)
            assert "Traceback" not in child.tail(), (delay, child.tail())
        finally:
            child.kill()
