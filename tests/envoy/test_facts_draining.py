"""What the real Envoy does with endpoints that are told as DRAINING."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from fleet.settings.membership import membership
from xds_server.snapshot import endpoints


@pytest.mark.parametrize("staying", [0, 1, 2, 4])
async def test_who_drains_gets_nothing_new_unless_nobody_else_is_there(
    world: Any, monkeypatch: pytest.MonkeyPatch, staying: int
) -> None:
    """Our balancer, override_host over Maglev, sends to everybody only when nobody at all is healthy.

    The rule that leaves some out is off here: it is for balancers that keep to `healthy_panic_threshold`.
    """
    monkeypatch.setattr(endpoints, "_without_panic", lambda pool, *_: pool)
    pool = world.pools["weighted"]
    weights, draining = dict.fromkeys(pool, 1000), frozenset(pool[staying:])
    world.publish(membership(world.settings), weights, draining=draining)

    async def taken() -> bool:
        hosts = (await world.envoy.clusters())["weighted"]
        return {
            a for a, host in hosts.items() if host["health_status"]["eds_health_status"] == "DRAINING"
        } == (draining)

    await world.eventually(taken, f"{len(draining)} draining")
    served = Counter([(await world.request("GET", "weighted")).engine for _ in range(80)])
    assert set(served) == (set(pool[:staying]) or set(pool))
    world.set_weights({})
