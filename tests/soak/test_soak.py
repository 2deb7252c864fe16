"""What lives long survives all that changes around it: `make soak` (ten minutes), here in short.

An idle WebSocket and a token stream are open from the first second to the last, beside weight updates,
rotated certificates and an xds_server that is killed, then rolled.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from bench.chaos_answers import answer_in, close, text_of_stream
from bench.chaos_site import ENGINE, Site, running_site
from warmroute.simulator.fits import timing
from warmroute.simulator.tokens import Speaker, render_chat

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SECONDS = float(os.environ.get("WARMROUTE_SOAK_SECONDS", "20"))
TOKEN_SECONDS = 0.1
AMPLE = 4
"""The stream has tokens for so many times as long; when all is done, the engine says the rest at once."""
PROMPT = "Tell me everything."

pytestmark = [pytest.mark.slow]


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


class Soak:
    """What is open, and what is done to the deployment meanwhile."""

    def __init__(self, site: Site, session: aiohttp.ClientSession) -> None:
        self.site, self.session = site, session
        self.updates = 0
        """Weight updates that were served, over all restarts."""
        self._told = 0

    async def status(self) -> dict[str, Any]:
        cluster = self.site.cluster
        return await cluster.get_json(cluster.admin_address, "/api/v1/status") or {}

    async def acked(self) -> int:
        return int((await self.status()).get("acks", 0))

    async def idle_socket(self, over: asyncio.Event) -> str:
        """Ask once, be silent until the time is over, ask again; returns who answered."""
        async with self.session.ws_connect(f"{self.site.url}/v1/realtime", autoclose=False) as socket:
            for number in range(2):
                await socket.send_json({"number": number, "text": PROMPT, "tokens": 3})
                assert await answer_in(socket, number) == Speaker().answer(PROMPT.encode(), 3)
                if not number:
                    # Whatever came meanwhile would be there at the end as well: nobody reads until then.
                    await over.wait()
            await close(socket)
            return str(socket._response.headers["x-engine-address"])

    async def tokens(self, count: int, began: asyncio.Event) -> float:
        """Read a stream to its end, compare it, and return its longest silence."""
        body = {
            "model": ENGINE.model,
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": count,
            "stream": True,
        }
        received, longest, last = bytearray(), 0.0, time.monotonic()
        async with self.session.post(f"{self.site.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200
            async for piece in response.content.iter_any():
                received += piece
                now = time.monotonic()
                longest, last = max(longest, now - last), now
                began.set()
        assert text_of_stream(received) == Speaker().answer(render_chat([("user", PROMPT)]), count)
        return longest

    async def move_weights(self) -> None:
        """Let one engine's page tell a full memory, then not, so that its weight goes down and up."""
        engine = self.site.cluster.engines[-1]
        for ratio in itertools.cycle((0.99, None)):
            fault = {"kind": "none"} if ratio is None else {"kind": "memory", "ratio": ratio}
            async with self.session.post(f"http://{engine}/admin/fault", json=fault) as response:
                assert response.status == 200
            for _ in range(6):
                await asyncio.sleep(0.5)
                told = int((await self.status()).get("weight_updates", 0))
                # A server that has started anew counts from 0.
                self.updates += told - self._told if told >= self._told else told
                self._told = told

    async def hurry(self) -> None:
        """Let the engines say what they have left."""
        for engine in self.site.cluster.engines:
            fault = {"kind": "slow", "factor": 0.001}
            async with self.session.post(f"http://{engine}/admin/fault", json=fault) as response:
                assert response.status == 200

    async def rotate(self) -> None:
        new = self.site.issue().certificate.public_bytes(Encoding.DER)

        async def served() -> bool:
            return await self.site.served_certificate() == new

        await until(served)

    async def restart_xds(self, number: signal.Signals) -> None:
        child = self.site.cluster.children["xds"]
        child.signal(number)
        await child.wait_for_end(20)
        await self.site.start_again("xds")

        async def heard() -> bool:
            return await self.acked() > 0

        await until(heard)


async def test_a_silent_websocket_and_a_long_stream_outlive_changes() -> None:
    speed = timing().step(1, 0, 0, 0) / TOKEN_SECONDS
    engine = replace(ENGINE, speed_up=speed, blocks=65_536)
    patience = aiohttp.ClientTimeout(total=None, sock_read=60)
    async with (
        running_site(2, engine) as site,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=site.client_context), timeout=patience
        ) as session,
    ):
        soak = Soak(site, session)
        over, began = asyncio.Event(), asyncio.Event()
        async with asyncio.timeout(AMPLE * SECONDS + 240), asyncio.TaskGroup() as tasks:
            socket = tasks.create_task(soak.idle_socket(over))
            stream = tasks.create_task(soak.tokens(int(AMPLE * SECONDS / TOKEN_SECONDS), began))
            await began.wait()
            opened = time.monotonic()
            moving = tasks.create_task(soak.move_weights())
            rounds = 0
            while time.monotonic() - opened < SECONDS or rounds < 2:
                await soak.rotate()
                await soak.restart_xds(signal.SIGTERM if rounds % 2 else signal.SIGKILL)
                rounds += 1
                await asyncio.sleep(SECONDS / 10)
            assert not stream.done(), "the stream was over before the changes were"
            assert not socket.done()
            moving.cancel()
            await soak.hurry()
            longest = await stream
            over.set()
        assert socket.result() in site.cluster.engines
        assert soak.updates >= 3, "weights did not move"
        assert longest < SECONDS / 2
        print(json.dumps({"rounds": rounds, "weight_updates": soak.updates, "longest_silence": longest}))
