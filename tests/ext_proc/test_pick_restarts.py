"""What is forgotten of an engine that has restarted: while it is a member, and while it was away."""

from __future__ import annotations

import pytest

from ext_proc.pick import Reason
from fleet.endpoint import Endpoint, Membership, Pool
from testing.signals import Load, Signal, view_with
from tests.ext_proc.worlds import World, chat, whole

ENDS = tuple(f"10.0.0.{number}:80" for number in range(3))
LONG = "You are a helpful assistant. " * 400
BEFORE, LATER, ANEW = 1e6, 1.1e6, 10.0


def publish(made: World, progress: dict[str, float], models: tuple[str, ...] = ("m",)) -> None:
    """Publish a fleet of these endpoints, each with what its engine has done so far."""
    now = made.clock.now
    pool = Pool("p", tuple(Endpoint(address, "p", models) for address in progress))
    loads = {
        address: Load(
            queue_depth=Signal(0.0, now, "x"),
            progress_total=Signal(total, now, "x"),
            reachable=Signal(1.0, now, "x"),
        )
        for address, total in progress.items()
    }
    made.store.publish(view_with(Membership((pool,)), {}, loads))
    made.director.pools.follow()


def left_and_returned(progress: float, *, away_seconds: float) -> tuple[World, str]:
    """A fleet whose warm engine left, and came back with its counter at `progress`."""
    made = World()
    publish(made, dict.fromkeys(ENDS, BEFORE))
    first = made.route(whole(chat(LONG))).endpoints[0]
    others = {address: BEFORE for address in ENDS if address != first}
    publish(made, others)
    made.clock.now += away_seconds / 2
    # Others come and go meanwhile.
    publish(made, {**others, "10.0.0.9:80": BEFORE})
    made.clock.now += away_seconds / 2
    publish(made, {**others, first: progress})
    return made, first


def test_an_engine_that_restarted_while_it_was_away_is_cold() -> None:
    made, first = left_and_returned(ANEW, away_seconds=20.0)
    assert made.director.warmth.index.block_count(first) == 0
    assert made.route(whole(chat(LONG))).reason is Reason.COLD


def test_an_engine_that_went_on_while_it_was_away_is_warm() -> None:
    made, first = left_and_returned(LATER, away_seconds=20.0)
    pick = made.route(whole(chat(LONG)))
    assert (pick.reason, pick.endpoints[0]) == (Reason.WARM, first)


def test_forgotten_engine_is_not_compared() -> None:
    """Its address may be another engine's by then, and what is sent there meanwhile counts."""
    made = World()
    publish(made, dict.fromkeys(ENDS, BEFORE))
    first = made.route(whole(chat(LONG))).endpoints[0]
    others = {address: BEFORE for address in ENDS if address != first}
    publish(made, others)
    made.clock.now += made.settings.ext_proc.pick.forget_after_seconds + 1.0
    publish(made, others)
    assert first not in made.director.pools._restarts._last
    publish(made, {first: ANEW})
    made.route(whole(chat(LONG)))
    publish(made, {first: ANEW + 1.0})
    assert made.route(whole(chat(LONG))).reason is Reason.WARM


@pytest.mark.parametrize("restarted", [True, False])
def test_an_engine_that_restarted_has_no_adapter_loaded(*, restarted: bool) -> None:
    made = World()
    publish(made, dict.fromkeys(ENDS, BEFORE), ("base", "lora"))
    first = made.route(whole(chat(LONG, model="lora"))).endpoints[0]
    pool = made.director.pools.find("", "lora")
    assert pool is not None
    publish(made, {**dict.fromkeys(ENDS, BEFORE), first: ANEW if restarted else LATER}, ("base", "lora"))
    lacks = pool.adapters.missing("lora\0", 0.0)
    # None: that holds for all.
    assert (lacks is None) is restarted
