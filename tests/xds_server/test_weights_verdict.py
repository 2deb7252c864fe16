"""Why a weight is what it is, for every endpoint, and weights that operators force."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, WeightSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import weigh
from xds_server.weights.weigh import Weigher

POOLS = Membership(
    (
        Pool("p", tuple(Endpoint(address, "p") for address in "abc")),
        Pool("q", (Endpoint("z", "q"),)),
    )
)
TICK = 0.25


def load(now: float, **values: float) -> Load:
    fields: dict[str, Any] = {"memory_used_ratio": 0.5, "queue_depth": 2, "running": 4, **values}
    return Load(**{name: Signal(float(value), now, "test") for name, value in fields.items()})


def loads(now: float, **by_address: dict[str, float]) -> dict[str, Load]:
    return {address: load(now, **by_address.get(address, {})) for address in "abcz"}


def weigher() -> Weigher:
    return Weigher(WeightSettings(), SignalSettings())


def test_no_verdict_before_the_first_tick() -> None:
    assert weigher().verdicts() == {}
    assert weigher().verdict("a") is None


def test_every_endpoint_has_a_verdict_at_each_tick() -> None:
    given = weigher()
    for now in (0.0, 0.25):
        update = weigh(given, POOLS, loads(now, a={"memory_used_ratio": 0.95}, b={"trust_ratio": 0.5}), now)
        verdicts = given.verdicts()
        assert {address: verdict.weight for address, verdict in verdicts.items()} == dict(update.weights)
        assert {verdict.pool for verdict in verdicts.values()} == {"p", "q"}
        assert sum(verdicts[address].share or 0.0 for address in "abc") == pytest.approx(1.0)
        assert verdicts["a"].reason == "silent zone 0.95"
        assert dict(verdicts["a"].factors) == pytest.approx({"silent_zone": 0.05})
        assert verdicts["b"].reason == "trust 0.5"
        assert verdicts["c"].reason == "memory 0.50"
        assert verdicts["c"].factors == {}
        assert verdicts["c"].score == pytest.approx(1 / (0.4 * 0.5 + 0.3 * 2 / 32))
        assert all(given.verdict(address) == verdict for address, verdict in verdicts.items())
    assert given.verdict("nobody") is None


def test_a_change_carries_what_its_verdict_says() -> None:
    given = weigher()
    update = weigh(given, POOLS, loads(0.0, a={"stalled": 1.0}), 0.0, ramp={"b": 0.35})
    assert len(update.changes) == 4
    for change in update.changes:
        verdict = given.verdict(change.address)
        assert verdict is not None
        assert (change.new, change.reason, change.score) == (verdict.weight, verdict.reason, verdict.score)
        assert change.factors == verdict.factors
    reasons = {change.address: change.reason for change in update.changes}
    assert reasons == {"a": "stalled", "b": "slow start 0.35", "c": "memory 0.50", "z": "memory 0.50"}


def test_who_is_marked_says_so() -> None:
    given = weigher()
    weigh(given, POOLS, loads(0.0, a={"reachable": 0.0}), 0.0)
    assert {address for address, verdict in given.verdicts().items() if verdict.unhealthy} == {"a"}
    assert given.verdicts()["a"].reason == "unreachable"


def test_an_override_is_in_force_at_once_and_ends_at_once() -> None:
    given = weigher()
    weigh(given, POOLS, loads(0.0), 0.0)
    forced = weigh(given, POOLS, loads(0.25), 0.25, overrides={"a": 7, "gone": 9})
    assert dict(forced.weights) == {"a": 7, "b": 1000, "c": 1000, "z": 1000}
    assert [(change.address, change.old, change.new, change.reason) for change in forced.changes] == [
        ("a", 1000, 7, "override")
    ]
    assert given.verdicts()["a"].share == pytest.approx(7 / 2007), "the weight in force, in its pool"
    assert given.verdicts()["b"].share == pytest.approx(1000 / 2007)
    assert given.verdicts()["a"].target_share == pytest.approx(1 / 3)
    still = weigh(given, POOLS, loads(0.5), 0.5, overrides={"a": 7, "gone": 9})
    assert not still.changed
    ended = weigh(given, POOLS, loads(0.75), 0.75)
    assert dict(ended.weights) == dict.fromkeys("abcz", 1000)


def test_override_outlasts_changes_and_restores() -> None:
    given = weigher()
    given.restore(POOLS, {"a": 500, "b": 1500, "c": 1000, "z": 800}, (), 0.0)
    forced = weigh(given, POOLS, {}, 0.0, overrides={"b": 42})
    assert dict(forced.weights) == {"a": 500, "b": 42, "c": 1000, "z": 800}
    assert given.restored == {"p", "q"}
    assert given.verdicts()["a"].reason == "last good state"
    assert given.verdicts()["a"].score is None
    assert dict(weigh(given, POOLS, {}, 0.25).weights)["b"] == 1500
    given.on_answers({"a"})
    for tick in range(8, 60):
        now = tick * TICK
        update = weigh(given, POOLS, loads(now, a={"stalled": 1.0}), now, overrides={"b": 42})
    assert update.weights["b"] == 42
    assert update.weights["a"] < 200
