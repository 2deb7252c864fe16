"""An engine that hangs is found where no ext_proc tells of requests: by its weight and the access log."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
import pytest_asyncio

from tests.product.conftest import LIMIT_SECONDS, Product, until
from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster
from warmroute.demo.processes import warmroute

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = EngineSettings(speed_up=20, blocks=8192)
OVERRIDES = {"limits": {"drain_seconds": 0.5}}
SOON = {**OVERRIDES, "signals": {"stalled_after_seconds": 1.0}}
"""And tried five seconds later."""

KEPT_SECONDS = 6.0
"""Of the ten until it is tried, some have passed when the server is ready."""


class Load:
    """Steady requests; those that hang are given up after a second."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self.served: Counter[str] = Counter()

    async def run(self) -> None:
        number = 0
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._one(number))
                number += 1
                await asyncio.sleep(0.025)

    async def reaches(self, engine: str, count: int) -> None:
        """Return when the engine has served so many."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while self.served[engine] < count:
                await asyncio.sleep(0.1)

    async def _one(self, number: int) -> None:
        try:
            async with asyncio.timeout(1.0):
                answer = await self._product.chat(f"question {number}")
        except TimeoutError:
            return
        self.served[answer.engine] += 1


@contextlib.asynccontextmanager
async def by_weights(overrides: dict[str, Any]) -> AsyncIterator[Product]:
    """`warmroute xds` without ext_proc."""
    async with (
        running_cluster(ClusterSettings("apart", 4, ENGINE, overrides)) as cluster,
        aiohttp.ClientSession() as session,
    ):
        await cluster.children["ext-proc"].stop(5.0)
        yield Product(cluster, session)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product() -> AsyncIterator[Product]:
    async with by_weights(SOON) as made:
        yield made


@pytest.mark.parametrize("page", ["silent", "answers"])
async def test_an_engine_that_hangs_is_left_by_weights_alone(product: Product, page: str) -> None:
    """All of the engine stops, or all but its page, and goes on later."""
    struck = product.cluster.engines[0]
    load = Load(product)

    async def left() -> bool:
        return await _unhealthy(product) == [struck]

    loading = asyncio.create_task(load.run())
    try:
        await load.reaches(struck, 20)
        await _stop(product, page)
        await until(left)
        await _go_on(product, page)
        await load.reaches(struck, load.served[struck] + 20)
    finally:
        await _go_on(product, page)
        await _end(loading)


@pytest.mark.slow
async def test_a_restart_forgets_no_engine_that_hangs() -> None:
    """Killed and started anew, xds_server keeps it out although its page answers, until it is tried."""
    async with by_weights(OVERRIDES) as product:
        cluster, struck = product.cluster, product.cluster.engines[0]
        load = Load(product)
        loading = asyncio.create_task(load.run())
        try:
            await load.reaches(struck, 20)
            await _stop(product, "answers")
            async with asyncio.timeout(30):
                while await _unhealthy(product) != [struck]:
                    await asyncio.sleep(0.1)
            state = cluster.directory / "xds.sock.last-good"
            async with asyncio.timeout(30):
                while b'"unhealthy":true' not in state.read_bytes().replace(b" ", b""):
                    await asyncio.sleep(0.1)
            cluster.children["xds"].kill()
            cluster.start("xds", warmroute("xds", str(cluster.settings_path)))
            await cluster.wait_answer("xds", cluster.admin_address, "/readyz")
            ready_at = time.monotonic()
            while time.monotonic() < ready_at + KEPT_SECONDS:
                assert await _unhealthy(product) == [struck]
                await asyncio.sleep(0.1)
        finally:
            await _end(loading)


async def _end(loading: asyncio.Task[None]) -> None:
    """End the load while its session is open; what failed in it fails the test."""
    loading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await loading


async def _stop(product: Product, page: str) -> None:
    if page == "silent":
        product.cluster.children["engine-0"].signal(signal.SIGSTOP)
    else:
        await product.fault(product.cluster.engines[0], kind="frozen")


async def _go_on(product: Product, page: str) -> None:
    if page == "silent":
        product.cluster.children["engine-0"].signal(signal.SIGCONT)
    else:
        await product.fault(product.cluster.engines[0], kind="none")


async def _unhealthy(product: Product) -> list[str]:
    told = await product.get(product.cluster.admin_address, "/api/v1/weights")
    return [address for address, verdict in told["weights"].items() if verdict["unhealthy"]]
