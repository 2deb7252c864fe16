"""Envoy's own probes of engines: slow ones stay, silent and dead ones go, and never too many."""

from __future__ import annotations

from typing import Any

import pytest_asyncio

from fleet.settings.probes import probe

CHECK = {
    "measured_p99_seconds": 0.3,
    "timeout_seconds": 1.5,
    "interval_seconds": 0.25,
    "failures": 3,
    "successes": 2,
}
SLOW_SECONDS = 0.3
"""What a working engine was measured to take. The engines are in this process: the time beyond it, up to the
limit, is the room for a host that keeps this process waiting through three probes in a row."""


def with_probes(settings: dict[str, Any]) -> None:
    for pool in settings["pools"]:
        if pool["name"] in ("marked", "mixed", "weighted"):
            pool["health_check"] = dict(CHECK)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def made(worlds: Any) -> Any:
    async with worlds(adapt=with_probes) as made:
        yield made
        assert not made.ads.nacks


class Probed:
    """One pool's engines as Envoy's probes see them."""

    def __init__(self, world: Any, pool: str) -> None:
        self.world, self.pool = world, pool

    async def out(self, address: str) -> bool:
        health = (await self.world.envoy.clusters())[self.pool][address]["health_status"]
        return bool(health.get("failed_active_health_check"))

    async def count(self, name: str) -> int:
        stats = await self.world.envoy.stats(f"cluster.{self.pool}.health_check.{name}")
        return int(next(iter(stats.values())))

    async def more(self, name: str, by: int) -> None:
        """Wait for so many more of a count."""
        start = await self.count(name)

        async def reached() -> bool:
            return await self.count(name) >= start + by

        await self.world.eventually(reached, f"{by} more {name}")

    async def becomes(self, address: str, *, out: bool) -> None:
        async def reached() -> bool:
            return await self.out(address) is out

        await self.world.eventually(reached, f"{address} out: {out}")

    async def served_by(self, requests: int = 20) -> set[str]:
        answers = [await self.world.post(listener=self.pool) for _ in range(requests)]
        assert {answer.status for answer in answers} == {200}
        return {answer.engine for answer in answers}


@pytest_asyncio.fixture(loop_scope="session")
async def probed(made: Any) -> Any:
    """The pool `marked`, everybody well."""
    made.ext_proc.reset()
    made.engines.delays.clear()
    made.engines.statuses.clear()
    held = Probed(made, "marked")
    for address in made.pools["marked"]:
        await held.becomes(address, out=False)
    return held


def settings_of(world: Any, name: str) -> Any:
    return next(pool for pool in world.settings.pools if pool.name == name)


async def test_a_slow_engine_that_works_stays(probed: Any) -> None:
    """It answers each probe as late as it was measured to, and keeps its share."""
    slow = probed.world.pools["marked"][0]
    probed.world.engines.delays[slow] = SLOW_SECONDS
    await probed.more("success", 12)
    assert not await probed.out(slow)
    assert slow in await probed.served_by(12)


async def test_a_probe_of_a_common_kind_would_take_it_out(probed: Any) -> None:
    """What the derived limit is for: the same engine under a limit below what it takes."""
    slow = probed.world.pools["marked"][0]
    held = probe(settings_of(probed.world, "marked"))
    assert held is not None
    probed.world.engines.delays[slow] = 2 * held.timeout_seconds
    await probed.becomes(slow, out=True)
    probed.world.engines.delays.clear()
    await probed.becomes(slow, out=False)


async def test_a_dead_engine_goes_and_is_not_missed(made: Any, probed: Any) -> None:
    dead, *alive = made.pools["mixed"]
    mixed = Probed(made, "mixed")
    await mixed.becomes(dead, out=True)
    assert await mixed.served_by() == set(alive)


async def test_it_takes_several_bad_answers_in_a_row(probed: Any) -> None:
    """By itself Envoy takes an engine out for one answer other than 200."""
    bad = probed.world.pools["marked"][0]
    for _ in range(3):
        probed.world.engines.statuses[bad] = 503
        await probed.more("failure", 1)
        probed.world.engines.statuses.clear()
        assert not await probed.out(bad)
        await probed.more("success", 6)
    probed.world.engines.statuses[bad] = 503
    await probed.becomes(bad, out=True)
    probed.world.engines.statuses.clear()
    await probed.becomes(bad, out=False)


async def test_a_pick_of_an_engine_that_is_out_is_obeyed(probed: Any) -> None:
    """override_host does not look at health: picks have eyes of their own."""
    world, bad = probed.world, probed.world.pools["marked"][0]
    world.engines.delays[bad] = 2 * CHECK["timeout_seconds"]
    await probed.becomes(bad, out=True)
    assert bad not in await probed.served_by()
    world.ext_proc.pick = bad
    assert (await world.post(listener="marked")).engine == bad


async def test_never_so_many_out_that_the_rest_gives_way(probed: Any) -> None:
    """Everybody silent to probes, and everybody is used."""
    world = probed.world
    for address in world.pools["marked"]:
        world.engines.statuses[address] = 404
    for address in world.pools["marked"]:
        await probed.becomes(address, out=True)
    answers = [await world.post(listener="marked") for _ in range(20)]
    assert {answer.engine for answer in answers} == set(world.pools["marked"])


async def test_who_leaves_goes_in_spite_of_good_probes(made: Any) -> None:
    """Envoy by itself keeps a host that left EDS as long as its probes succeed."""
    gone, *stay = made.pools["weighted"]
    made.set_membership({"weighted": stay})
    try:
        await made.eds_absent("weighted", gone)
    finally:
        made.set_membership({})


async def test_without_the_setting_nobody_is_probed(made: Any) -> None:
    assert await made.envoy.stats("cluster.weighted.health_check.attempt")
    assert await made.envoy.stats("cluster.live.health_check") == {}
