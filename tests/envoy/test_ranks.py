"""Data-parallel ranks behind the real Envoy: picks name them, clients do not, and all goes on without."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from fleet.names import HEADER_RANK
from tests.envoy.conftest import eventually
from tests.envoy.site import site
from warmroute.simulator.fits import timing
from warmroute.simulator.http import ServerConfig, listening
from warmroute.simulator.model import EngineConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.envoy.site import Site
    from warmroute.simulator.http import EngineServer

pytestmark = [pytest.mark.asyncio, pytest.mark.io]
CALLS = 8
RANKS = 2


class Door:
    """Envoy in front of engines of two ranks each."""

    def __init__(self, site: Site, engines: list[EngineServer]) -> None:
        self.site, self.engines = site, engines
        self.url = f"http://{site.addresses['chat']}/v1/chat/completions"

    def named(self) -> bool:
        view = self.site.ext_proc._store.view
        ranks = None if view is None else view.ranks.get("chat")
        return ranks is not None and ranks.named

    def served(self) -> dict[tuple[int, int], int]:
        """Requests by engine and rank."""
        return {
            (number, rank): driver.model.counters.submitted_requests
            for number, engine in enumerate(self.engines)
            for rank, driver in enumerate(engine.drivers)
        }

    async def ask(self, text: str, *, chunked: bool = False, **headers: str) -> tuple[tuple[int, int], int]:
        """Ask once; return the engine and the rank that served, and the cached tokens."""
        before = self.served()
        body = json.dumps({"messages": [{"role": "user", "content": text}], "max_tokens": 2}).encode()
        sent = {"content-type": "application/json", **{k.replace("_", "-"): v for k, v in headers.items()}}

        async def parts() -> AsyncIterator[bytes]:
            yield body[:100]
            yield body[100:]

        data: Any = parts() if chunked else body
        async with self.site.client.post(self.url, data=data, headers=sent) as response:
            answer = await response.json()
            assert response.status == 200, answer
        (place,) = [place for place, count in self.served().items() if count > before[place]]
        return place, answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@contextlib.asynccontextmanager
async def opened(directory: Path, *ranks: int) -> AsyncIterator[Door]:
    config = EngineConfig(timing=timing().faster(1000.0))
    async with contextlib.AsyncExitStack() as stack:
        engines = [
            await stack.enter_async_context(listening(ServerConfig(config, ranks=count), "127.0.0.1", 0))
            for count in ranks
        ]
        pools = {"chat": ("http1", [address for _, address in engines])}
        yield Door(await stack.enter_async_context(site(directory, pools)), [engine for engine, _ in engines])


@pytest_asyncio.fixture(loop_scope="session")
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    async with opened(tmp_path, RANKS, RANKS) as door:
        await eventually(door.named, "ranks are named")
        yield door


def text_of(number: int) -> str:
    return f"Conversation {number}. " + f"You are assistant {number}. " * 100


async def test_a_second_turn_hits_the_cache_of_its_rank(door: Door) -> None:
    """By bodies in one message and by leading parts of others; a client's header steers neither."""
    for chunked in (False, True):
        first = [await door.ask(text_of(n), chunked=chunked, x_data_parallel_rank="0") for n in range(CALLS)]
        again = [
            await door.ask(text_of(n) + "And then?", chunked=chunked, x_data_parallel_rank="9")
            for n in range(CALLS)
        ]
        assert [place for place, _ in again] == [place for place, _ in first]
        assert all(cached > 0 for _, cached in again)
        assert len({place for place, _ in first}) == 2 * RANKS


async def test_a_client_names_no_rank_where_no_pick_does(door: Door) -> None:
    """No route lets its header pass: the engine would answer 400."""
    for content_type in ("text/plain", "application/json"):
        await door.ask("Hi", content_type=content_type, x_data_parallel_rank="9")
    async with door.site.client.get(
        door.url.replace("chat/completions", "models"), headers={HEADER_RANK: "9"}
    ) as response:
        assert response.status == 200


async def test_requests_go_on_without_ext_proc(door: Door) -> None:
    await door.ask(text_of(1))
    await door.site.ext_proc.stop()
    for number in range(CALLS):
        await door.ask(text_of(number), x_data_parallel_rank="9")


async def test_no_rank_is_named_while_engines_have_unlike_numbers(tmp_path: Path) -> None:
    async with opened(tmp_path, 2, 4) as door:
        await eventually(lambda: len(door.site.server._sensing.scraper.ranks()) == 2, "both pages are read")
        for number in range(2 * CALLS):
            await door.ask(text_of(number))
        assert not door.named()
