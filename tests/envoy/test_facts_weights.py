"""Without a pick the real Envoy follows EDS weights, across localities and through updates."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

COUNT = 400
# Five standard deviations of a share at 400 draws is at most 0.125; Maglev's own rounding is far smaller.
TOLERANCE = 0.125


async def _shares(world: Any, listener: str, **options: Any) -> dict[str, float]:
    served: Counter[str] = Counter()
    for _ in range(COUNT // 20):
        answers = await asyncio.gather(*(world.request("GET", listener, **options) for _ in range(20)))
        served.update(answer.engine for answer in answers)
    return {address: count / COUNT for address, count in served.items()}


@pytest.mark.parametrize("weights", [(7000, 2000, 999, 1), (999, 2000, 7000, 1)])
async def test_shares_follow_endpoint_weights_across_localities(world: Any, weights: Any) -> None:
    """The first endpoint has a locality of its own, the others share one: it makes no difference."""
    await world.weights_taken("weighted", dict(zip(world.pools["weighted"], weights, strict=True)))
    shares = await _shares(world, "weighted")
    for address, weight in zip(world.pools["weighted"], weights, strict=True):
        assert shares.get(address, 0) == pytest.approx(weight / 10_000, abs=TOLERANCE), shares


async def test_light_endpoints_do_not_starve_under_frequent_updates(world: Any) -> None:
    """Each update rebuilds the balancer, and round robin would begin with the heaviest each time.

    Membership changes here, because Envoy merges updates of weights alone over a second.
    """
    heavy, medium, light, extra = world.pools["weighted"]
    weights = dict(zip(world.pools["weighted"], (7000, 2000, 1000, 1), strict=True))
    served: Counter[str] = Counter()
    for step in range(100):
        if step % 2:
            world.set_membership({"weighted": [heavy, medium, light]}, weights)
            await world.eds_absent("weighted", extra)
        else:
            await world.weights_taken("weighted", weights)
        served.update([(await world.request("GET", "weighted")).engine])
    assert served[light] >= 1, served
    assert served[medium] >= 5, served


async def test_session_stays_on_one_endpoint_without_a_pick(world: Any) -> None:
    """Maglev hashes the session header, so affinity survives ext_proc's absence; sessions spread."""
    homes = set()
    for session in range(12):
        headers = {"x-session-id": f"session-{session}"}
        engines = {(await world.post(headers=headers)).engine for _ in range(4)}
        assert len(engines) == 1, engines
        homes |= engines
    assert len(homes) > 1


async def test_membership_changes_without_a_failed_request(world: Any) -> None:
    """An endpoint that leaves EDS gets nothing more, and nobody notices."""
    gone = world.pools["marked"][0]
    world.set_membership({"marked": world.pools["marked"][1:]})
    try:
        await world.eds_absent("marked", gone)
        answers = [await world.request("GET", "marked") for _ in range(15)]
        assert {answer.status for answer in answers} == {200}
        assert gone not in {answer.engine for answer in answers}
        world.ext_proc.pick = gone
        assert (await world.post(listener="marked")).engine in world.pools["marked"][1:]
    finally:
        world.set_weights({})
        await world.eds_health("marked", gone, healthy=True)
