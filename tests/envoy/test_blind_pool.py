"""Engines whose pages tell nothing: prompts stay where they are warm, and new ones go by weights."""

from __future__ import annotations

import contextlib
from collections import Counter
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from aiohttp import web

from fleet.names import HEADER_ENDPOINT
from tests.envoy.site import site
from warmroute.simulator.workload import words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.envoy.site import Site

ENGINES = 4
CONVERSATIONS = 6
TURNS = 8
COLD = 240


@contextlib.asynccontextmanager
async def silent_engine() -> AsyncIterator[str]:
    """An engine of no known kind: it answers, and its page says nothing of memory, queue or running."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        picked = request.headers.get(HEADER_ENDPOINT) is not None
        return web.json_response({"address": address, "picked": picked})

    async def page(_: web.Request) -> web.Response:
        return web.Response(text="process_open_fds 12\n")

    application = web.Application()
    application.router.add_post("/v1/chat/completions", answer)
    application.router.add_get("/metrics", page)
    runner = web.AppRunner(application)
    await runner.setup()
    listening = web.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield address
    finally:
        await runner.cleanup()


async def served(world: Site, *texts: str) -> tuple[str, bool]:
    """Send a conversation of so many messages; return who served it, and whether there was a pick."""
    messages = [{"role": "user", "content": text} for text in texts]
    url = f"http://{world.addresses['chat']}/v1/chat/completions"
    async with world.client.post(url, json={"messages": messages}) as response:
        assert response.status == 200
        told = await response.json()
        return told["address"], told["picked"]


async def test_blind_pool_keeps_conversations_and_spreads_new_prompts(tmp_path: Path) -> None:
    """Weights alone decided each turn anew: 33 to 36 of 42 turns were at another engine than the last."""
    random = Random(5)
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(silent_engine()) for _ in range(ENGINES)]
        world = await stack.enter_async_context(site(tmp_path, {"chat": ("http1", engines)}))
        talks = [[words(random, 400)] for _ in range(CONVERSATIONS)]
        seen: list[list[tuple[str, bool]]] = [[] for _ in talks]
        for _ in range(TURNS):
            for talk, where in zip(talks, seen, strict=True):
                where.append(await served(world, *talk))
                talk += [words(random, 40), words(random, 20)]
        # A worker that answers too late on a busy host leaves a turn to Envoy, which goes by weights.
        pairs = [pair for where in seen for pair in pairwise(where) if pair[0][1] and pair[1][1]]
        assert len(pairs) > CONVERSATIONS * (TURNS - 1) / 2, "too few turns had a pick"
        assert not [pair for pair in pairs if pair[0][0] != pair[1][0]]
        counts = Counter([(await served(world, words(random, 200)))[0] for _ in range(COLD)])
        assert world.registry.get_sample_value("warmroute_blind_pools") == 1
        fair = COLD / ENGINES
        assert all(0.5 * fair < counts[address] < 1.6 * fair for address in engines), counts
