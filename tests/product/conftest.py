"""The product as a user runs it: its own commands, the real Envoy, simulated engines."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest_asyncio

from fleet.names import HEADER_REASON
from warmroute.demo.cluster import Cluster, ClusterSettings, EngineSettings, running_cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import pytest

LIMIT_SECONDS = 300.0
"""Reached by nothing that works: it ends a test that would wait for ever."""

FAST: dict[str, dict[str, Any]] = {
    "signals": {"scrape_interval_seconds": 0.2, "scrape_timeout_seconds": 0.2},
    "weights": {"stabiliser": {"smoothing_seconds": 0.3, "minimum_interval_seconds": 0.2}},
    "limits": {"drain_seconds": 1.0},
    "telemetry": {"traces": "console", "pick_sample_ratio": 1.0},
    # Of a host that stalls, a request should wait for its pick in the place of going by weights.
    "ext_proc": {"message_timeout_seconds": 10.0},
}


class Product:
    """A running deployment and a client before it."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.session = session

    async def chat(
        self, prompt: str, *, headers: dict[str, str] | None = None, max_tokens: int = 2
    ) -> Answer:
        """Send one chat request through Envoy."""
        body = {
            "model": self.cluster.settings.engine.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
        }
        url = f"http://{self.cluster.address}/v1/chat/completions"
        async with self.session.post(url, json=body, headers=headers) as response:
            return Answer(response.status, dict(response.headers), await response.text())

    async def picked(self, prompt: str, *, headers: dict[str, str] | None = None) -> Answer:
        """Send one chat request that ext_proc chooses for.

        Envoy leaves ext_proc out while it holds it for frozen, as a stall of the host may make it look.
        """
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                answer = await self.chat(prompt, headers=headers)
                assert answer.status == 200, answer.text[:200]
                if HEADER_REASON in answer.headers:
                    return answer
                await asyncio.sleep(0.05)

    async def get(self, address: str, path: str) -> Any:
        """Get a JSON document."""
        async with self.session.get(f"http://{address}{path}") as response:
            return json.loads(await response.text())

    async def text(self, address: str, path: str) -> str:
        """Get a page."""
        async with self.session.get(f"http://{address}{path}") as response:
            return await response.text()

    async def fault(self, engine: str, **fault: Any) -> None:
        """Break an engine."""
        async with self.session.post(f"http://{engine}/admin/fault", json=fault) as response:
            assert response.status == 200, await response.text()

    async def weights(self) -> dict[str, int]:
        """Return what xds_server says it serves."""
        told = await self.get(self.cluster.admin_address, "/api/v1/endpoints")
        return {entry["address"]: entry["weight"] for entry in told["endpoints"]}


class Answer:
    """One response."""

    def __init__(self, status: int, headers: dict[str, str], text: str) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.text = text

    @property
    def engine(self) -> str:
        """Who served, by its own word."""
        return self.headers["x-engine-address"]

    @property
    def cached_tokens(self) -> int:
        """What the engine found in its prefix cache."""
        return int(json.loads(self.text)["usage"]["prompt_tokens_details"]["cached_tokens"])


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return when the condition holds."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await condition():
            await asyncio.sleep(0.05)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["serve", "apart"])
async def product(request: pytest.FixtureRequest) -> AsyncIterator[Product]:
    """Both forms: one process, and two."""
    engine = EngineSettings(speed_up=50, blocks=24_000)
    async with (
        running_cluster(ClusterSettings(request.param, 3, engine, FAST)) as cluster,
        aiohttp.ClientSession() as session,
    ):
        yield Product(cluster, session)
