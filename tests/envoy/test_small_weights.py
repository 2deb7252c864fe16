"""Newcomers among many: a share of a small weight is a weight still, and Envoy keeps to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.envoy.conftest import Engines
from xds_server.weights.border import MIN_WEIGHT, to_weights

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.envoy.conftest import World

LOADED = 20
SLOW_START_FROM = 0.1
REQUESTS = 4000
AT_ONCE = 16


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def made(worlds: Any) -> AsyncIterator[tuple[World, list[str]]]:
    engines = Engines()
    await engines.start()
    addresses = [await engines.add() for _ in range(LOADED + 1)]

    def many(settings: dict[str, Any]) -> None:
        pool = next(pool for pool in settings["pools"] if pool["name"] == "marked")
        pool["endpoints"] = [{"address": address} for address in addresses]

    try:
        async with worlds(adapt=many) as world:
            world.pools["marked"] = addresses
            yield world, addresses
            assert not world.ads.nacks
    finally:
        await engines.stop()


async def served(world: World) -> Counter[str]:
    """Who gets how many of requests that nobody picks for."""
    counts: Counter[str] = Counter()
    numbers = iter(range(REQUESTS))

    async def ask() -> None:
        for _ in numbers:
            counts[(await world.request("GET", "marked")).engine] += 1

    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return counts


@pytest.mark.parametrize("share", [1.0, 0.6], ids=["typical", "small"])
async def test_a_newcomer_gets_a_little_from_the_first_moment(
    made: tuple[World, list[str]], share: float
) -> None:
    """Its own share times where slow start begins: neither nothing nor, as the emptiest, the most."""
    world, addresses = made
    newcomer, wanted = addresses[-1], share * SLOW_START_FROM
    weights = [int(weight) for weight in to_weights([1.0] * LOADED + [wanted])]
    await world.weights_taken("marked", dict(zip(addresses, weights, strict=True)))
    counts = await served(world)
    expected = REQUESTS * wanted / (LOADED + wanted)
    assert expected > 8, "fewer could be none by chance"
    assert 1 <= counts[newcomer] <= 4 * expected
    fair = REQUESTS / LOADED
    assert all(fair / 2 < counts[address] < 2 * fair for address in addresses[:-1])


async def test_the_smallest_share_of_all_is_no_weight_of_zero(made: tuple[World, list[str]]) -> None:
    """For which Envoy would refuse the whole assignment, and keep to weights of long ago."""
    world, addresses = made
    weights = [int(weight) for weight in to_weights([1.0] * LOADED + [1e-9 * SLOW_START_FROM])]
    assert weights[-1] == MIN_WEIGHT
    await world.weights_taken("marked", dict(zip(addresses, weights, strict=True)))
    assert world.ads.nacks == []
