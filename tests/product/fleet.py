"""One running fleet for every test that looks at it: `serve`, Envoy, three engines, and steady traffic."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import aiohttp

from warmroute.demo.cluster import ClusterSettings, EngineSettings, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from warmroute.demo.cluster import Cluster

REQUEST_ID: Final = "5f2e7a10-3c1f-4a55-9a54-6a2b7f1c0e11"
"""Of the first request; its pick is remembered."""
SETTINGS: Final = {
    "signals": {"scrape_interval_seconds": 0.2, "scrape_timeout_seconds": 0.2},
    "limits": {"drain_seconds": 0.5},
    "ext_proc": {"message_timeout_seconds": 10.0},
}
_PAUSE_SECONDS: Final = 0.2
_LIMIT_SECONDS: Final = 120.0
_PROMPTS: Final = tuple(f"You are assistant {n} of a fleet that is looked at. " * 20 for n in range(4))


@dataclass(frozen=True)
class Fleet:
    """Where its parts are."""

    address: str
    admin: str
    envoy_admin: str
    engines: Sequence[str]
    ended: Future[None]
    """Holds the fault with which its traffic has ended, while it runs."""

    def check(self) -> None:
        """Raise what ended its traffic."""
        if self.ended.done():
            self.ended.result()


@contextlib.contextmanager
def running_fleet() -> Iterator[Fleet]:
    """Run it in a thread of its own, so that tests may block."""
    started: Future[tuple[Cluster, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    with ThreadPoolExecutor(1, "fleet") as thread:
        ended = thread.submit(lambda: asyncio.run(_run(started)))
        wait((started, ended), _LIMIT_SECONDS, FIRST_COMPLETED)
        if ended.done():
            ended.result()
        cluster, loop, stop = started.result(0.0)
        assert cluster.envoy is not None
        engines = tuple(cluster.engines)
        try:
            yield Fleet(cluster.address, cluster.admin_address, cluster.envoy.admin_address, engines, ended)
        finally:
            with contextlib.suppress(RuntimeError):  # its loop is closed, because its traffic has failed
                loop.call_soon_threadsafe(stop.set)
        ended.result(_LIMIT_SECONDS)


async def _run(started: Future[tuple[Cluster, asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    settings = ClusterSettings("serve", 3, EngineSettings(speed_up=50), SETTINGS)
    async with running_cluster(settings) as cluster, aiohttp.ClientSession() as session:
        stop = asyncio.Event()
        await _chat(session, cluster, _PROMPTS[0], {"x-request-id": REQUEST_ID})
        traffic = asyncio.create_task(_traffic(session, cluster))
        stopping = asyncio.create_task(stop.wait())
        started.set_result((cluster, asyncio.get_running_loop(), stop))
        await asyncio.wait({traffic, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (traffic, stopping):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await traffic


async def _traffic(session: aiohttp.ClientSession, cluster: Cluster) -> None:
    while True:
        for prompt in _PROMPTS:
            await _chat(session, cluster, prompt, {})
            await asyncio.sleep(_PAUSE_SECONDS)


async def _chat(
    session: aiohttp.ClientSession, cluster: Cluster, prompt: str, headers: dict[str, str]
) -> None:
    body = {
        "model": cluster.settings.engine.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 4,
    }
    url = f"http://{cluster.address}/v1/chat/completions"
    async with session.post(url, json=body, headers=headers) as response:
        text = await response.text()
        assert response.status == 200, text[:200]
