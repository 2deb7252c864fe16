"""Stopping: at any moment, with many streams open, and of one Envoy of two that have the same name."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bench.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster
from bench.envoy import EnvoyProcess
from bench.processes import Child, warmroute
from bench.xds_client import XdsClient
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from tests.product.conftest import FAST

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

CLIENTS = 50
DRAIN_SECONDS = float(FAST["limits"]["drain_seconds"])
POOL = "engines"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster(ClusterSettings("apart", 2, EngineSettings(speed_up=50), FAST)) as cluster:
        yield cluster


async def until(reached: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not await reached():
            await asyncio.sleep(0.05)


async def clients(cluster: Cluster) -> list[dict[str, Any]]:
    told = await cluster.get_json(cluster.admin_address, "/api/v1/clients")
    listed: list[dict[str, Any]] = told["clients"] if told else []
    return listed


async def hosts(envoy: EnvoyProcess) -> set[str]:
    return set((await envoy.clusters())[POOL])


async def restarted(cluster: Cluster) -> None:
    cluster.start("xds", warmroute("xds", str(cluster.settings_path)))
    await cluster.wait_answer("xds", cluster.admin_address, "/readyz")


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_envoy_that_goes_takes_nothing_from_its_successor_of_the_same_name(cluster: Cluster) -> None:
    """As in a hot restart: both run for a while, then the old one's streams end."""
    made = await cluster.bootstrap()
    async with EnvoyProcess(made) as old:
        await old.wait_ready()
        async with EnvoyProcess(made) as new:
            await new.wait_ready()
            assert [client["streams"] for client in await clients(cluster)] == [3], "all have one name"
            await old.stop()

            async def fewer() -> bool:
                return [client["streams"] for client in await clients(cluster)] == [2]

            await until(fewer)
            gone = cluster.engines[-1]
            cluster.pool_overrides["endpoints"] = [{"address": address} for address in cluster.engines[:-1]]
            cluster.write_settings()
            try:

                async def followed() -> bool:
                    return gone not in await hosts(new)

                await until(followed)
                assert await cluster.get(cluster.address, "/v1/models") is not None
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
        async with asyncio.timeout(20):
            await asyncio.gather(*(client.synced.wait() for client in held))
        child = cluster.children["xds"]
        began = time.monotonic()
        child.signal(signal.SIGTERM)
        while child.running:
            statuses.add(await cluster.get(cluster.address, "/v1/models") is not None)
            assert time.monotonic() < began + 10 * DRAIN_SECONDS
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
    for port in (cluster.admin_address, cluster.ext_proc_admin_address):
        text = text.replace(port, "")
    settings.write_text(text)
    for number, delay in enumerate((0.05, 0.8, 1.6)):
        child = Child(f"early-{number}", warmroute(verb, str(settings)), tmp_path)
        try:
            await asyncio.sleep(delay)
            child.signal(signal.SIGTERM)
            await child.wait_for_end(10 * DRAIN_SECONDS)
            assert "Traceback" not in child.tail(), (delay, child.tail())
        finally:
            child.kill()
