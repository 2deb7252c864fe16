"""Large prompts and small ones at once: reading the large ones delays no small one beyond its pick."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import pytest_asyncio

from bench.envoy import EnvoyProcess
from fleet.names import DESTINATION_KEY
from tests.envoy.conftest import Engines, free_address
from tests.envoy.foreign import Foreign, Way, bootstrap

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.processors import Nursery

JSON = {"content-type": "application/json"}
LARGE = json.dumps({"model": "m", "prompt": list(range(100_000, 230_000))}).encode()
"""A million bytes of token ids: the slowest JSON there is to read."""
SMALL = json.dumps({"model": "m", "prompt": "how are you? " * 40}).encode()
LARGE_AT_ONCE = 48
ROUNDS = 2
WAY = Way("way", "BUFFERED", extra={"message_timeout": "3s"})
"""With the product's own quarter of a second a busy host would decide, not the code, and so it would with
what is as short as the stalls of such hosts. 48 times 70 ms for a body are more than three seconds."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def apart(nursery: Nursery) -> AsyncIterator[Foreign]:
    """The service in a process of its own, so that engines and clients here cost it nothing."""
    with tempfile.TemporaryDirectory(prefix="warmroute-test-") as directory:
        engines = Engines()
        await engines.start()
        pool = [await engines.add() for _ in range(3)]
        addresses, socket = {WAY.name: free_address()}, str(Path(directory) / "ext_proc.sock")
        processor = await nursery.start(socket, pool)
        try:
            async with (
                EnvoyProcess(bootstrap([WAY], addresses, socket, pool)) as envoy,
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
            ):
                await envoy.wait_ready()
                yield Foreign(envoy, engines, pool, http, addresses, socket)
        finally:
            processor.kill()
            await engines.stop()


async def picked(world: Foreign, body: bytes) -> bool:
    """Send it; it must be answered, and whether it had a pick is told."""
    async with world.http.post(world.url(WAY.name), data=io.BytesIO(body), headers=JSON) as response:
        assert response.status == 200
        return DESTINATION_KEY in dict((await response.json())["headers"])


async def test_small_prompts_get_their_pick_beside_many_large_ones(apart: Foreign) -> None:
    assert len(LARGE) < 1 << 20, "more than Envoy shows to ext_proc"
    small: list[bool] = []
    for _ in range(ROUNDS):
        large = [asyncio.create_task(picked(apart, LARGE)) for _ in range(LARGE_AT_ONCE)]
        while not all(task.done() for task in large):
            small.append(await picked(apart, SMALL))
        assert all(await asyncio.gather(*large))
    assert len(small) >= ROUNDS
    assert all(small)
    assert await apart.stat(WAY.name, "message_timeouts") == 0
