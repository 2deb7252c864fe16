"""Long-lived connections of the real Envoy: pings on quiet ones, and how many streams one carries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest import mock

import aiohttp
import pytest_asyncio

from fleet.names import EXT_PROC_CLUSTER
from fleet.settings import load
from tests.envoy.workers import worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.conftest import World

PING_SECONDS = 0.5
"""The least that our servers permit. By gRPC's default the third ping on a quiet connection ends it."""
PATIENCE_SECONDS = 60.0
"""More than settings may have: a test's own process stalls, and answers no ping meanwhile."""
QUIET_SECONDS = 5 * PING_SECONDS
STREAMS = 40
REQUESTS = 100


def eager(settings: dict[str, Any]) -> None:
    settings["connections"] = {
        "ping_seconds": PING_SECONDS,
        "ping_timeout_seconds": PATIENCE_SECONDS,
        "ext_proc_streams": STREAMS,
    }
    settings["limits"] = {"drain_seconds": 0.5}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def made(worlds: Any) -> AsyncIterator[World]:
    with mock.patch.object(load, "contradictions", return_value=[]):
        async with worlds(adapt=eager) as made:
            yield made
            assert not made.ads.nacks


async def count(world: World, name: str) -> int:
    stat = f"cluster.{EXT_PROC_CLUSTER}.{name}"
    return (await world.envoy.stats(stat)).get(stat, 0)


async def test_our_server_permits_the_pings_of_a_quiet_connection(made: World) -> None:
    async with worker(made):
        assert (await made.post()).status == 200
        cut = await count(made, "upstream_cx_destroy")
        await asyncio.sleep(QUIET_SECONDS)
        assert await count(made, "upstream_cx_destroy") == cut
        connections = await count(made, "upstream_cx_total")
        assert (await made.post()).status == 200
        assert await count(made, "upstream_cx_total") == connections, "the next request has the same one"
        assert await count(made, "http2.keepalive_timeout") == 0


async def test_a_server_with_grpcs_defaults_does_not(made: World) -> None:
    """The trap that the check of pings to engines is for: this stand-in has no options."""
    assert (await made.post()).status == 200
    before = await count(made, "upstream_cx_destroy")

    async def cut() -> bool:
        return await count(made, "upstream_cx_destroy") > before

    await made.eventually(cut, "the quiet connection has ended")
    assert (await made.post()).status == 200


async def test_a_connection_carries_no_more_streams_than_leave_room(made: World) -> None:
    """Envoy opens another one for more, and no request waits for the end of one before."""
    started: list[int] = []
    made.engines.release.clear()

    async def ask(http: aiohttp.ClientSession) -> int:
        url = made.url(path="/stream?held=1")
        async with http.post(url, json={"prompt": "x"}) as response:
            await response.content.readuntil(b"\n\n")
            started.append(1)
            await response.read()
            return response.status

    async with worker(made), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        asked = [asyncio.create_task(ask(http)) for _ in range(REQUESTS)]
        await made.eventually(lambda: len(started) == REQUESTS, "all have begun")
        assert await count(made, "upstream_cx_active") >= REQUESTS / STREAMS
        made.engines.release.set()
        assert set(await asyncio.gather(*asked)) == {200}
        assert await count(made, "upstream_rq_pending_overflow") == 0
