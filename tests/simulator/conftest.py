"""A simulated engine on a free port, and a client for it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from warmroute.simulator.fits import timing
from warmroute.simulator.http import EngineServer, ServerConfig, listening
from warmroute.simulator.model import EngineConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@dataclass(frozen=True)
class Engine:
    """A running engine, its address and a client."""

    server: EngineServer
    address: str
    client: aiohttp.ClientSession

    def post(self, path: str, body: object, **headers: str) -> Any:
        """POST JSON; header names with _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(f"http://{self.address}{path}", json=body, headers=named)

    async def get(self, path: str) -> tuple[int, str]:
        """Status and text."""
        async with self.client.get(f"http://{self.address}{path}") as reply:
            return reply.status, await reply.text()

    async def chat(self, text: str, **fields: object) -> dict[str, Any]:
        """One chat request that must succeed, without stream."""
        body = {"model": "warm-model", "messages": [{"role": "user", "content": text}], **fields}
        async with self.post("/v1/chat/completions", body) as reply:
            assert reply.status == 200, await reply.text()
            parsed: dict[str, Any] = await reply.json()
            return parsed

    async def counts(self) -> dict[str, Any]:
        """GET /admin/seen."""
        parsed: dict[str, Any] = json.loads((await self.get("/admin/seen"))[1])
        return parsed

    async def fault(self, **fault: object) -> int:
        """POST /admin/fault; returns the status."""
        async with self.post("/admin/fault", fault) as reply:
            await reply.read()
            return int(reply.status)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for the server to come to a state; fails after 10 s."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.002)


@asynccontextmanager
async def running(*, speed_up: float = 200.0, ranks: int = 1, **config: Any) -> AsyncIterator[Engine]:
    """An engine while the context lasts."""
    engine = EngineConfig(timing=timing().faster(speed_up), **config)
    async with (
        listening(ServerConfig(engine, ranks=ranks), "127.0.0.1", 0) as (server, address),
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as client,
    ):
        yield Engine(server, address, client)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    """A fast engine."""
    async with running() as started:
        yield started


@pytest.fixture
def run_engine() -> Callable[..., Any]:
    """Start engines of other speeds and sizes, each while its context lasts."""
    return running
