"""Slow start in the weights, and weights that go on from the last good state."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, StabiliserSettings, WeightSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import weigh
from xds_server.weights.weigh import Weigher

if TYPE_CHECKING:
    from xds_server.weights.weigh import WeightUpdate

SIGNALS = SignalSettings()
TICK = 0.25


def members(letters: str) -> Membership:
    return Membership((Pool("p", tuple(Endpoint(address, "p") for address in letters)),))


def loads(letters: str, now: float, memory: float = 0.5) -> dict[str, Load]:
    return {a: Load(memory_used_ratio=Signal(memory, now, "test")) for a in letters}


def ramped(weigher: Weigher, start: float, seconds: float, lowest: float) -> list[tuple[float, WeightUpdate]]:
    """Let `c` join `a` and `b` at second 10; returns the updates from then on."""
    updates = []
    for number in range(round(40 / TICK)):
        now = number * TICK
        letters = "ab" if now < start else "abc"
        share = min(1.0, (now - start) / seconds)
        ramp = {"c": lowest + (1 - lowest) * share} if start <= now and share < 1 else {}
        update = weigh(weigher, members(letters), loads(letters, now), now, ramp)
        if update.changed and now >= start:
            updates.append((now, update))
    return updates


@pytest.mark.parametrize("interval", [1.0, 0.0, 7.0])
def test_newcomer_reaches_its_full_weight_by_steps(interval: float) -> None:
    settings = WeightSettings(stabiliser=StabiliserSettings(minimum_interval_seconds=interval))
    updates = ramped(Weigher(settings, SIGNALS), 10.0, 20.0, 0.1)
    first, last = updates[0][1].weights, updates[-1][1].weights
    assert first["c"] / first["a"] == pytest.approx(0.1, rel=0.01)
    assert last["a"] == last["b"] == last["c"] == 1000
    assert updates[-1][0] <= 10 + 20 + max(interval, TICK) + TICK, "a ramp ends by itself"
    assert all(after - before >= interval for (before, _), (after, _) in pairwise(updates))
    growing = [update.weights["c"] / update.weights["a"] for _, update in updates]
    assert growing == sorted(growing)
    assert len(updates) <= 25, "steps below the dead band are not worth a push"
    assert all(
        change.reason.startswith("slow start 0.") for change in updates[0][1].changes if change.new < 500
    )


def test_weights_stay_at_least_one_however_small_the_factor() -> None:
    updates = ramped(Weigher(WeightSettings(), SIGNALS), 10.0, 20.0, 1e-9)
    assert min(min(update.weights.values()) for _, update in updates) >= 1
    assert updates[-1][1].weights["c"] == 1000


def test_ramp_and_signals_share_one_minimum_interval() -> None:
    weigher = Weigher(WeightSettings(stabiliser=StabiliserSettings(smoothing_seconds=0.1)), SIGNALS)
    changed_at = []
    for number in range(200):
        now = number * TICK
        swing = 0.9 if int(now * 2) % 2 else 0.2
        ramp = {"c": 0.1 + now / 60} if now < 50 else {}
        update = weigh(weigher, members("abc"), {**loads("bc", now), **loads("a", now, swing)}, now, ramp)
        changed_at += [now] if update.changed else []
    assert len(changed_at) > 10
    assert all(after - before >= 1.0 for before, after in pairwise(changed_at))


def test_who_leaves_during_its_ramp_leaves_nothing_behind() -> None:
    weigher = Weigher(WeightSettings(), SIGNALS)
    weigh(weigher, members("abc"), loads("abc", 0), 0.0, {"c": 0.1})
    assert set(weigh(weigher, members("ab"), loads("ab", 1), 1.0).weights.values()) == {1000}
    assert not weigh(weigher, members("ab"), loads("ab", 9), 9.0).changed


SAVED = {"a": 400, "b": 1600}


def restored(weights: dict[str, int] = SAVED, unhealthy: str = "") -> Weigher:
    weigher = Weigher(WeightSettings(), SIGNALS)
    weigher.restore(members("ab"), weights, unhealthy, 0.0)
    return weigher


def test_silent_engines_keep_saved_weights_and_marks() -> None:
    weigher = restored(unhealthy="a")
    dead = {a: Load(reachable=Signal(0.0, 1.0, "test")) for a in "ab"}
    for now in (1.0, 2.0, 60.0):
        update = weigh(weigher, members("ab"), dead, now)
        assert (dict(update.weights), update.unhealthy) == (SAVED, {"a"})
    assert weigher.restored == {"p"}


def test_first_answer_moves_on_from_saved_weights() -> None:
    weigher = restored(unhealthy="a")
    weigh(weigher, members("ab"), {}, 1.0)
    weigher.on_answers({"b"})
    assert weigher.restored == frozenset()
    update = weigh(weigher, members("ab"), loads("ab", 1.25), 1.25)
    assert (dict(update.weights), update.unhealthy) == (SAVED, frozenset())
    for number in range(200):
        update = weigh(weigher, members("ab"), loads("ab", 2 + number * TICK), 2 + number * TICK)
    assert update.weights["b"] / update.weights["a"] < 1.3, "equal loads come to equal weights"


def test_a_restart_pushes_nothing_when_the_loads_are_as_before() -> None:
    """The saved weights are in force: what differs by less than the dead band moves nothing."""
    weigher = restored({"a": 1000, "b": 1000})
    weigher.on_answers("ab")
    now = 0.5
    first = weigh(weigher, members("ab"), loads("a", now, 0.50) | loads("b", now, 0.51), now)
    assert dict(first.weights) == {"a": 1000, "b": 1000}


def test_somebody_new_beside_the_saved_ones_gets_their_mean() -> None:
    update = weigh(restored(), members("abc"), {}, 1.0)
    assert update.weights["a"] < update.weights["c"] < update.weights["b"]
