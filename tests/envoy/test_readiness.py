"""Engines that load, fail, vanish or are none: who gets clients' requests, with the real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from tests.envoy.conftest import eventually
from tests.envoy.fickle import Deaf, Fickle
from tests.envoy.site import Site, site

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

JOINING = {"probe_interval_seconds": 0.2, "probe_timeout_seconds": 0.5, "slow_start_seconds": 0}
PROMPT = "word " * 200


class Fleet:
    """Three engines of one pool behind Envoy, and Deaf ports that are closed at the end."""

    def __init__(self, running: Site, engines: list[Fickle]) -> None:
        self.site, self.engines = running, engines
        self.number = 0
        self.retried_seconds = 0.0
        """The longest that a request took which was retried."""

    async def ask(self, *, picked: bool = True) -> tuple[int, int]:
        """Send a prompt of its own, or by weights; return status and number of attempts."""
        self.number += 1
        body = {"model": "m", "messages": [{"role": "user", "content": f"{self.number} {PROMPT}"}]}
        headers = {"content-type": "application/json" if picked else "text/plain"}
        url = f"http://{self.site.addresses['p']}/v1/chat/completions"
        began = time.monotonic()
        async with self.site.client.post(url, json=body, headers=headers) as response:
            await response.read()
            attempts = int(response.headers.get("x-warmroute-attempts", "1"))
        if attempts > 1:
            self.retried_seconds = max(self.retried_seconds, time.monotonic() - began)
        return response.status, attempts

    async def many(self, count: int, seconds: float, *, picked: bool = True) -> list[tuple[int, int]]:
        """Send so many, so many seconds apart."""
        async with asyncio.TaskGroup() as tasks:
            asked = []
            for _ in range(count):
                asked.append(tasks.create_task(self.ask(picked=picked)))
                await asyncio.sleep(seconds)
        return [each.result() for each in asked]

    async def clean_run(self, count: int = 20) -> None:
        """Return when so many in a row were answered at the first attempt, by picks and by weights."""
        row = 0

        async def clean() -> bool:
            nonlocal row
            answers = [await self.ask(picked=picked) for picked in (True, False)]
            row = row + len(answers) if set(answers) == {(200, 1)} else 0
            return row >= count

        await eventually(clean, "answers come at the first attempt")

    async def told(self, engine: Fickle | Deaf) -> dict[str, Any]:
        """What the admin server tells of an engine."""
        listed = self.site.server.views()["/api/v1/endpoints"]()["endpoints"]
        found: dict[str, Any] = next(each for each in listed if each["address"] == engine.address)
        return found

    async def is_ready(self, engine: Fickle) -> bool:
        return (await self.told(engine))["load"].get("ready") != 0


@contextlib.asynccontextmanager
async def running(directory: Path, engines: list[Fickle], **more: Any) -> AsyncIterator[Fleet]:
    pools = {"p": ("http1", [engine.address for engine in engines])}
    async with site(directory, pools, models=["m"], joining=JOINING, **more) as made:
        yield Fleet(made, engines)


@contextlib.asynccontextmanager
async def three(directory: Path) -> AsyncIterator[Fleet]:
    """Three engines that are well."""
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Fickle()) for _ in range(3)]
        yield await stack.enter_async_context(running(directory, engines))


async def test_loading_engine_gets_probes_and_no_clients(tmp_path: Path) -> None:
    """A few requests until it is noticed; none afterwards, by picks and by weights; then its share again."""
    async with three(tmp_path) as fleet:
        loading = fleet.engines[0]
        await fleet.many(30, 0.02)
        loading.state = "loading"

        async def noticed() -> bool:
            await fleet.many(1, 0.05)
            return not await fleet.is_ready(loading)

        await eventually(noticed, "it is told as not ready")
        await eventually(lambda: _unhealthy(fleet, loading), "Envoy leaves it out")
        await fleet.clean_run()  # Envoy's workers and ext_proc hear a moment later.
        few = loading.clients[503]
        answers = await fleet.many(60, 0.05) + await fleet.many(60, 0.02, picked=False)
        assert {status for status, _ in answers} == {200}
        assert loading.clients[503] == few, "it is tried with probes alone"
        loading.state = "well"
        await eventually(lambda: fleet.is_ready(loading), "its probe has passed")
        await fleet.many(30, 0.05)
        before = loading.clients[200]
        await fleet.many(60, 0.05)
        assert loading.clients[200] - before >= 10, "half its fair share of 20"


async def _unhealthy(fleet: Fleet, engine: Fickle | Deaf) -> bool:
    hosts = (await fleet.site.envoy.clusters())["p"]
    return bool(hosts[engine.address]["health_status"].get("eds_health_status") == "UNHEALTHY")


async def test_where_no_probe_passes_those_that_serve_are_asked(tmp_path: Path) -> None:
    """Nobody is left without an engine for the sake of our probes."""
    async with three(tmp_path) as fleet:
        for engine in fleet.engines:
            engine.state = "loading"

        async def noticed() -> bool:
            await fleet.many(1, 0.05)
            return all([(await fleet.told(engine))["not_ready"] for engine in fleet.engines])

        await eventually(noticed, "all are told as not ready")
        for engine in fleet.engines[1:]:
            engine.state = "stranger"  # its probe finds no model, and it answers clients
        before = [engine.clients[200] for engine in fleet.engines]

        async def both_serve() -> bool:
            await fleet.many(10, 0.05)
            return all(
                engine.clients[200] - count >= 20
                for engine, count in zip(fleet.engines[1:], before[1:], strict=True)
            )

        await eventually(both_serve, "the first of them that is not believed does not get everything")


async def test_a_recovered_engine_gets_its_share_again_at_light_load(tmp_path: Path) -> None:
    """Its page and its model list were well throughout, so only clients' answers tell."""
    async with three(tmp_path) as fleet:
        failing = fleet.engines[1]
        failing.state = "failing"

        async def distrusted() -> bool:
            await fleet.many(4, 0.02)
            trust = (await fleet.told(failing))["load"].get("trust_ratio")
            return trust is not None and trust < 0.1

        await eventually(distrusted, "its trust is lost")
        failing.state = "well"
        await fleet.many(60, 0.1)
        before = failing.clients[200]
        await fleet.many(60, 0.05)
        assert failing.clients[200] - before >= 10, "half its fair share of 20"


async def test_address_without_connection_is_left_without_blame(tmp_path: Path) -> None:
    """Within some scrapes, by picks and by weights; those that serve the retries are no slower for it."""
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Fickle()) for _ in range(3)]
        fleet = await stack.enter_async_context(running(tmp_path, engines, connect_timeout_seconds=1.5))
        await fleet.many(20, 0.02)
        deaf = await engines[0].vanish()
        stack.callback(deaf.close)
        deaf.fill()
        first = await fleet.many(20, 0.01, picked=False)
        assert {status for status, _ in first} == {200}
        assert max(attempts for _, attempts in first) > 1, "else nothing was retried"

        async def unreachable() -> bool:
            return (await fleet.told(deaf))["load"].get("reachable") == 0

        await eventually(unreachable, "two scrapes without a connection")
        await eventually(lambda: _unhealthy(fleet, deaf), "Envoy leaves it out")
        await fleet.clean_run()
        later = await fleet.many(60, 0.05) + await fleet.many(60, 0.02, picked=False)
        assert set(later) == {(200, 1)}
        assert await unreachable()
        for engine in engines[1:]:
            load = (await fleet.told(engine))["load"]
            assert load["trust_ratio"] == 1
            assert load["first_byte_p99_seconds"] < fleet.retried_seconds / 2, "the wait was elsewhere"


async def test_a_server_that_shows_neither_model_nor_page_stays_out(tmp_path: Path, caplog: Any) -> None:
    """It answers 404 to whatever it is asked, as any server does; the log says what was asked."""
    async with contextlib.AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(Fickle()) for _ in range(2)]
        stranger = await stack.enter_async_context(Fickle("stranger"))
        fleet = await stack.enter_async_context(running(tmp_path, [*engines, stranger]))
        await fleet.many(60, 0.01, picked=False)
        assert not stranger.clients
        assert (await fleet.told(stranger))["state"] == "probing"
    texts = [record.getMessage() for record in caplog.records if stranger.address in record.getMessage()]
    assert any("/v1/models was answered 404, and its metrics page was answered 404" in text for text in texts)


async def test_where_nobody_is_better_it_is_asked_all_the_same(tmp_path: Path) -> None:
    async with Fickle("stranger") as stranger, running(tmp_path, [stranger]) as fleet:
        assert await fleet.ask() == (200, 1)
        assert stranger.clients == {200: 1}
