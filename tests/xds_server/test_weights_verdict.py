"""Why a weight is what it is, for every endpoint, and weights that operators force."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, WeightSettings
from fleet.signals import SIGNALS
from testing.signals import Load, Signal
from tests.xds_server.tables import weigh
from xds_server.weights.strategies import STRATEGIES
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
    assert reasons == {
        "a": "stalled, at the floor",
        "b": "slow start 0.35",
        "c": "memory 0.50",
        "z": "memory 0.50",
    }


def test_who_is_marked_says_so() -> None:
    given = weigher()
    weigh(given, POOLS, loads(0.0, a={"reachable": 0.0}), 0.0)
    assert {address for address, verdict in given.verdicts().items() if verdict.unhealthy} == {"a"}
    assert given.verdicts()["a"].reason == "unreachable, at the floor"


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


def reason_after(steps: list[dict[str, Any]], settings: WeightSettings | None = None) -> str:
    """The reason of `a` after one tick per step, one second apart, of four endpoints."""
    pool = Membership((Pool("p", tuple(Endpoint(address, "p") for address in "abcd")),))
    subject = Weigher(settings or WeightSettings(), SignalSettings())
    for at, values in enumerate(steps):
        by_address = {address: load(float(at), **values.get(address, {})) for address in "abcd"}
        weigh(subject, pool, by_address, float(at), ramp=values.get("ramp", {}))
    verdict = subject.verdict("a")
    assert verdict is not None
    return verdict.reason


EMPTY = {"memory_used_ratio": 0.02, "queue_depth": 0.0, "running": 1.0}
FULL = {"memory_used_ratio": 0.84, "queue_depth": 40.0, "latency_p99_seconds": 9.0}


def test_the_reason_names_the_cap_of_the_best_share() -> None:
    assert reason_after([{"a": EMPTY, "b": FULL, "c": FULL, "d": FULL}]) == (
        "memory 0.02, at 2 x the equal share"
    )


def test_the_reason_names_the_ratio_cap() -> None:
    settings = WeightSettings.model_validate({"stabiliser": {"ratio_cap": 2.0, "floor_share": 0.0}})
    assert reason_after([{"a": FULL, "b": EMPTY, "c": EMPTY, "d": EMPTY}], settings).endswith(
        ", at 1/2 of the best"
    )


def test_the_reason_names_the_floor_under_load() -> None:
    settings = WeightSettings.model_validate({"stabiliser": {"floor_share": 0.9}})
    assert reason_after([{"a": FULL}], settings).endswith(", at the floor")


def test_the_reason_names_the_dead_band() -> None:
    steps = [{}, {"a": {"memory_used_ratio": 0.56}}]
    settings = WeightSettings.model_validate({"stabiliser": {"smoothing_seconds": 0.0}})
    assert reason_after(steps, settings) == "memory 0.56, within the dead band"
    assert reason_after(steps[:1], settings) == "memory 0.50"


def test_the_reason_names_a_recovery_and_slow_start_with_a_fault() -> None:
    assert "recovering from a fault" in reason_after([{"a": {"stalled": 1.0}}, {}])
    slowed = reason_after([{"a": {"trust_ratio": 0.5}, "ramp": {"a": 0.35}}])
    assert slowed == "trust 0.5, slow start 0.35"


def test_signals_of_a_verdict_are_those_of_its_strategy() -> None:
    subject = weigher()
    faulty = loads(0.0, a={"trust_ratio": 0.5})
    weigh(subject, POOLS, faulty, 2.0)
    signals = subject.signals("a")
    assert signals["memory_used_ratio"] == (0.5, 2.0, "scrape")
    assert signals["trust_ratio"] == (0.5, 2.0, "scrape")
    assert signals["latency_p99_seconds"] is None
    assert "trust_ratio" not in subject.signals("b")
    weigh(subject, POOLS, faulty, 1000.0)
    assert subject.signals("b")["memory_used_ratio"] == (None, 1000.0, "scrape")
    assert subject.signals("nobody") == {}


@pytest.mark.parametrize("memory", ["kv", "gpu", "highest"])
@pytest.mark.parametrize("strategy", list(STRATEGIES))
def test_every_strategy_names_its_signals(strategy: Any, memory: Any) -> None:
    subject = Weigher(WeightSettings(strategy=strategy, memory=memory), SignalSettings())
    weigh(subject, POOLS, loads(0.0), 0.0)
    assert subject.signals("a").keys() <= SIGNALS.keys()
    assert len(subject.signals("a")) > 0


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
