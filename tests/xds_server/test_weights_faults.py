"""Faults in the weights: the silent zone, trust, GPUs, hanging and dead engines, and who is left out."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.errors import SettingsError
from fleet.settings import SignalSettings, WeightSettings
from fleet.settings.load import parse_settings
from fleet.settings.weights import FaultSettings, SilentZoneSettings, StabiliserSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import columns_of, weigh
from xds_server.weights.faults import fault_factors, silent_zone
from xds_server.weights.health import unhealthy
from xds_server.weights.peaks import Peaks
from xds_server.weights.trusted import Trusted
from xds_server.weights.weigh import Weigher

if TYPE_CHECKING:
    from collections.abc import Callable

ZONE = SilentZoneSettings()
POOL = Membership((Pool("p", tuple(Endpoint(address, "p") for address in "abcd")),))
TICK = 0.25


def load(at: float = 0.0, **values: float) -> Load:
    fields: dict[str, Any] = {"memory_used_ratio": 0.5, "queue_depth": 2, "running": 4, **values}
    return Load(**{name: Signal(float(value), at, "test") for name, value in fields.items()})


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_zone_only_falls_and_stays_in_its_bounds(one: float, other: float) -> None:
    low, high = sorted((one, other))
    less, more = silent_zone([low, high], ZONE).tolist()
    assert ZONE.least_factor <= more <= less <= 1.0


def test_zone_follows_the_settings_without_steps() -> None:
    assert silent_zone([0.0, 0.85, np.nan], ZONE).tolist() == [1.0, 1.0, 1.0]
    assert silent_zone([0.92, 0.99, 1.0], ZONE).tolist() == pytest.approx([ZONE.least_factor] * 3)
    fine = silent_zone(np.linspace(0.8, 1.0, 2001), ZONE)
    assert np.abs(np.diff(fine)).max() < 0.01
    assert silent_zone([0.885], ZONE)[0] == pytest.approx((1 + ZONE.least_factor) / 2)


def factors(*given: Load) -> list[float]:
    columns = columns_of(given)
    trust = Trusted().step(tuple(map(str, range(len(given)))), columns, 0.0, WeightSettings().stabiliser)
    result = fault_factors(columns, columns.memory_used_ratio, trust, ZONE, FaultSettings())
    return list((result.but_the_zone() * result.silent_zone).tolist())


def test_each_fault_lowers_the_weight_of_its_endpoint() -> None:
    result = factors(
        load(),
        load(trust_ratio=0.1),
        load(gpu_health_score=0.9),
        load(gpu_health_score=0.4),
        load(gpu_health_score=0.0),
        load(stalled=1),
        load(reachable=0),
        load(ready=0),
        load(memory_used_ratio=0.95),
        load(gpu_health_score=1.0, stalled=0, reachable=1, trust_ratio=1.0),
        load(gpu_health_score=float(np.float32(0.9)), trust_ratio=0.5),
    )
    expected = [1.0, 0.1, 0.5, 0, 0, 0, 0, 0, ZONE.least_factor, 1.0, 0.25]
    assert result == pytest.approx(expected)


def test_no_fault_is_no_factor() -> None:
    assert factors(load(), load(stalled=0, reachable=1)) == [1.0, 1.0]


def test_worst_are_marked_first() -> None:
    loads = {
        "a": load(gpu_health_score=0.4),
        "b": load(stalled=1),
        "c": load(stalled=1),
        "d": load(gpu_health_score=0.0),
        "e": load(reachable=0),
        "f": load(gpu_health_score=0.9),
    }
    columns = columns_of(list(loads.values()))
    for most, marked in ((1.0, "abcde"), (0.7, "bcde"), (0.5, "bde"), (0.34, "de"), (0.2, "d"), (0.1, "")):
        assert unhealthy(list(loads), columns, most) == frozenset(marked)


def run(
    loads_at: Callable[[float], dict[str, Load]], seconds: float
) -> tuple[list[tuple[float, dict[str, int]]], Weigher]:
    """Weigh four times a second; returns each moment with the weights in force."""
    weigher = Weigher(WeightSettings(), SignalSettings())
    history = []
    for number in range(round(seconds / TICK)):
        now = number * TICK
        history.append((now, dict(weigh(weigher, POOL, loads_at(now), now).weights)))
    return history, weigher


def one_faulty(since: float, until: float, **fault: float) -> Callable[[float], dict[str, Load]]:
    return lambda now: {
        address: load(now, **fault) if address == "a" and since <= now < until else load(now)
        for address in "abcd"
    }


def share(weights: dict[str, int]) -> float:
    """Of `a`, over the fair share."""
    return weights["a"] / sum(weights.values()) * len(weights)


@pytest.mark.parametrize(
    ("fault", "most", "reason"),
    [
        ({"stalled": 1.0}, 0.06, "stalled, at the floor"),
        ({"reachable": 0.0}, 0.06, "unreachable, at the floor"),
        ({"ready": 0.0}, 0.06, "not ready, at the floor"),
        ({"memory_used_ratio": 0.97}, 0.08, "silent zone 0.97, at the floor, within the dead band"),
        ({"gpu_health_score": 0.4}, 0.06, "gpu health 0.4, at the floor"),
        ({"gpu_health_score": 0.9}, 0.6, "gpu health 0.9"),
        ({"trust_ratio": 0.1}, 0.15, "trust 0.1"),
    ],
)
def test_fault_acts_at_once_and_fades_in_five_seconds(
    fault: dict[str, float], most: float, reason: str
) -> None:
    history, weigher = run(one_faulty(10.0, 20.0, **fault), 20.0)
    fallen = next(at for at, weights in history if share(weights) <= most)
    assert 10.0 <= fallen <= 10.0 + TICK
    assert all(share(weights) <= most for at, weights in history if at >= fallen)
    verdict = weigher.verdict("a")
    assert verdict is not None
    assert verdict.reason == reason
    healed, _ = run(one_faulty(10.0, 20.0, **fault), 30.0)
    back = next(at for at, weights in healed if at >= 20.0 and share(weights) >= 0.5)
    assert back <= 24.0


def test_the_silent_zone_works_for_every_strategy() -> None:
    for strategy in ("headroom", "p99", "predictive", "balanced"):
        weigher = Weigher(WeightSettings(strategy=strategy), SignalSettings())  # type: ignore[arg-type]
        loads = {address: load(latency_p99_seconds=0.2) for address in "bcd"}
        loads["a"] = load(latency_p99_seconds=0.1, memory_used_ratio=0.96)
        assert share(dict(weigh(weigher, POOL, loads, 0.0).weights)) < 0.1, strategy


def test_when_all_are_full_who_tells_nothing_gets_no_flood() -> None:
    weigher = Weigher(WeightSettings(), SignalSettings())
    loads = {address: load(memory_used_ratio=0.97) for address in "abc"}
    weights = weigh(weigher, POOL, loads, 0.0).weights
    assert set(weights.values()) == {1000}


def test_flapping_memory_is_followed_less_and_less() -> None:
    """10 % jitter around memory 0.8 reaches into the zone; the weight must not go up and down with it."""
    rng = np.random.default_rng(4)
    shaken = {address: 0.8 * rng.uniform(0.9, 1.1, 240) for address in "a"}

    def loads_at(now: float) -> dict[str, Load]:
        memory = float(shaken["a"][int(now)])
        return {address: load(now, memory_used_ratio=memory if address == "a" else 0.5) for address in "abcd"}

    history, _ = run(loads_at, 240.0)
    changes = [at for (at, new), (_, old) in zip(history[1:], history, strict=False) if new != old]
    assert len(changes) <= 24
    assert sum(at > 120 for at in changes) <= 12


def test_peaks_come_at_once_and_leave_in_time() -> None:
    peaks = Peaks()
    values = [0.5, 0.97, 0.5, 0.5, 0.5, 0.5]
    levels = [
        float(peaks.step(("a",), np.array([value]), float(now), 1.0, 0.85)[0])
        for now, value in enumerate(values)
    ]
    assert levels[:2] == [0.5, 0.97]
    assert levels[2:] == sorted(levels[2:], reverse=True)
    assert 0.6 < levels[2] < 0.7
    switched_off = Peaks()
    for value in values:
        assert switched_off.step(("a",), np.array([value]), 0.0, 0.0, 0.85).tolist() == [value]


def test_peaks_follow_their_endpoints() -> None:
    peaks = Peaks()
    peaks.step(("a", "b"), np.array([0.97, 0.1]), 0.0, 3.0, 0.85)
    levels = peaks.step(("c", "b", "a"), np.array([0.2, 0.1, 0.5]), 1.0, 3.0, 0.85).tolist()
    assert levels[:2] == [0.2, 0.1]
    assert 0.8 < levels[2] < 0.9


def test_a_zone_that_ends_before_it_begins_is_refused() -> None:
    text = (
        "pools: [{name: p}]\nlisteners: [{name: l, address: '127.0.0.1:1', pool: p}]\n"
        "weights: {silent_zone: {from_ratio: 0.95}}\n"
    )
    with pytest.raises(SettingsError, match=r"weights\.silent_zone.*from_ratio below full_ratio"):
        parse_settings(text)


def levelled(*trusts: float, most: float = 0.5, **last: float) -> list[float]:
    columns = columns_of([*(load(trust_ratio=trust) for trust in trusts), *([load(**last)] if last else [])])
    settings = StabiliserSettings(max_unhealthy_share=most)
    addresses = tuple(map(str, range(len(columns))))
    return list(Trusted().step(addresses, columns, 0.0, settings).tolist())


def test_differences_of_least_trust_move_nothing() -> None:
    """Which of them is a little less distrusted is chance; it must not get everything."""
    assert levelled(0.02, 0.02, 0.02, 0.03) == pytest.approx([0.5] * 4)


@given(st.lists(st.floats(0.02, 1), min_size=2, max_size=12), st.floats(0, 1))
def test_trust_takes_a_bounded_share_and_keeps_the_order(trusts: list[float], most: float) -> None:
    """So nobody gets more than a multiple of the fair share because the others fail."""
    result = levelled(*trusts, most=most)
    taken_at_most = max(most, 0.5)
    assert sum(result) / len(result) >= 1.0 - taken_at_most - 1e-9
    for (one, before), (other, other_before) in itertools.combinations(zip(result, trusts, strict=True), 2):
        assert (one - other) * (before - other_before) >= 0
    if sum(trusts) / len(trusts) >= 1.0 - taken_at_most:
        assert result == trusts


def test_one_of_two_that_fails_still_gets_next_to_nothing() -> None:
    assert levelled(1.0, 0.02) == [1.0, 0.02]
    assert levelled(1.0, 1.0, 1.0, 0.02, most=0.1) == [1.0, 1.0, 1.0, 0.02], "most means more than half"


def test_gone_endpoints_are_no_capacity_left_by_trust() -> None:
    """Of two that are left one fails: it is distrusted as in a pool of two."""
    assert levelled(1.0, 0.02, reachable=0.0)[:2] == [1.0, 0.02]
    assert levelled(0.02, 0.03, stalled=1.0)[:2] == pytest.approx([0.5, 0.5])


def test_first_to_recover_is_not_flooded() -> None:
    """Trust comes back within a second where answers are good; until the others follow, twice is the most."""
    since = {"a": 12.0, "b": 14.0, "c": 15.0, "d": 15.0}

    def loads_at(now: float) -> dict[str, Load]:
        trust = {a: 0.02 if 2.0 <= now < healed else 1.0 for a, healed in since.items()}
        return {address: load(now, trust_ratio=trust[address]) for address in "abcd"}

    history, _ = run(loads_at, 20.0)
    assert max(max(weights.values()) / sum(weights.values()) for _, weights in history) <= 0.5 + 0.03
    assert len(set(history[int(9 / TICK)][1].values())) == 1, "while all fail all are equal"
    assert share(history[-1][1]) == pytest.approx(1.0, abs=0.1)
