"""Predicted against real, by pool: times to first token, and cached parts of prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, pool_of, view_of, whole

if TYPE_CHECKING:
    from fleet.store import FleetView


def view_at(world: World, count: float, seconds: float) -> FleetView:
    """One endpoint, whose engine has counted first tokens and their times."""
    now = world.clock()
    load = Load(
        queue_depth=Signal(0.0, now, "scrape"),
        first_tokens_total=Signal(count, now, "scrape"),
        first_token_seconds_total=Signal(seconds, now, "scrape"),
    )
    membership = view_of(pool_of(count=1)).membership
    return view_with(membership, {}, dict.fromkeys(membership.by_address, load))


def value(world: World, name: str, **labels: str) -> float | None:
    return world.registry.get_sample_value(f"warmroute_{name}", {"pool": "p", **labels})


@pytest.mark.parametrize(
    ("late", "direction", "outcome"), [(3.0, "late", "beyond_p90"), (-0.004, "early", "within_p90")]
)
def test_engines_first_token_is_compared_with_the_prediction(
    late: float, direction: str, outcome: str
) -> None:
    world = World()
    world.store.publish(view_at(world, 10.0, 5.0))
    expected = world.route(whole(chat("word " * 4000))).expected_seconds
    assert expected is not None
    world.clock.now += 1.0
    world.store.publish(view_at(world, 11.0, 5.0 + expected + late))
    world.director.pools.follow()
    name = "ttft_prediction_error_seconds"
    assert value(world, f"{name}_count", direction=direction) == 1.0
    assert value(world, f"{name}_sum", direction=direction) == pytest.approx(abs(late))
    assert value(world, "ttft_predictions_total", outcome=outcome) == 1.0


def test_cancelled_request_has_no_first_token_and_no_work_ahead() -> None:
    """The engine's next first token is that of the request behind it."""
    world = World()
    world.store.publish(view_at(world, 10.0, 5.0))
    tokens = []
    for words in (40_000, 400):
        request = whole(chat("word " * words))
        decision = world.director.pick(request, world.director.reader.read(request))
        sent = world.director.book(decision)
        tokens.append(world.director.started(decision.result.endpoints[0], sent))
    (pool,) = world.director.pools
    ahead = pool.backlog.free_at[0] - world.clock()
    world.clock.now += ahead / 8
    world.director.finished(tokens[0])
    assert pool.backlog.free_at[0] - world.clock() < ahead / 8
    assert sent is not None
    world.store.publish(view_at(world, 11.0, 5.0 + sent.expected.median))
    world.director.pools.follow()
    assert value(world, "ttft_prediction_error_seconds_count", direction="late") == 1.0
    assert value(world, "ttft_prediction_error_seconds_sum", direction="late") == pytest.approx(0.0)


def test_cached_part_of_prompts_is_counted() -> None:
    world = World(view_of(pool_of(count=1)))
    text = "word " * 4000
    for _ in range(2):
        matched_share = world.route(whole(chat(text))).matched_share
    assert matched_share == 1.0
    cached, cold = (value(world, "picked_prompt_bytes_total", part=part) for part in ("cached", "cold"))
    assert cached is not None
    assert cold is not None
    block = world.settings.ext_proc.pick.block_bytes
    assert cached == pytest.approx((cached + cold) / 2, abs=block)
    assert cached % block == 0
