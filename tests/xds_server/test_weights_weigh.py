"""The whole way from loads to integers: stale and missing signals, pools, health, updates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.settings import SignalSettings, StabiliserSettings, WeightSettings
from fleet.signals import SignalTable
from testing.signals import Load, Signal
from tests.xds_server.tables import columns_of, weigh
from xds_server.weights.health import unhealthy
from xds_server.weights.weigh import Weigher, WeightUpdate

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS = SignalSettings()
DIRECT = WeightSettings(
    stabiliser=StabiliserSettings(smoothing_seconds=0.0, dead_band_ratio=0.0, minimum_interval_seconds=0.0)
)


def members(**pools: str) -> Membership:
    """Pools by name, one letter an endpoint."""
    return Membership(
        tuple(
            Pool(name, tuple(Endpoint(address, name) for address in letters))
            for name, letters in pools.items()
        )
    )


def load(now: float, memory: float, queue: float = 0.0, *, up: bool = True) -> Load:
    return Load(
        memory_used_ratio=Signal(memory, now, "test"),
        queue_depth=Signal(queue, now, "test"),
        latency_p99_seconds=Signal(0.5, now, "test"),
        reachable=Signal(float(up), now, "test"),
    )


def test_weights_follow_headroom_and_say_why() -> None:
    update = weigh(Weigher(DIRECT, SIGNALS), members(p="ab"), {"a": load(0, 0.8), "b": load(0, 0.2, 30)}, 0.0)
    assert update.changed
    assert [(change.address, change.old, change.reason) for change in update.changes] == [
        ("a", None, "memory 0.80"),
        ("b", None, "queue 30"),
    ]
    assert {change.address: change.new for change in update.changes} == dict(update.weights)
    used_a, used_b = 0.4 * 0.8 + 0.3 * 0.25, 0.4 * 0.2 + 0.3 * 30 / 32 + 0.3 * 0.25
    assert update.weights["a"] / update.weights["b"] == pytest.approx(used_b / used_a, rel=0.01)
    assert sum(update.weights.values()) == pytest.approx(2000, abs=2)


@pytest.mark.parametrize("memories", [(), (0.2,)])
def test_a_full_gpu_is_no_load_unless_the_settings_say_so(memories: tuple[float, ...]) -> None:
    """Engines that tell no KV use reserve as much of their GPU as they were started with."""
    engines = [
        Load(queue_depth=Signal(0.0, 0.0, "test"), gpu_memory_used_ratio=Signal(full, 0.0, "dcgm"))
        for full in (0.95, 0.5)
    ]
    loads = dict(zip("abc", [*engines, *(load(0.0, memory) for memory in memories)], strict=False))
    pool = members(p="".join(loads))
    weights = weigh(Weigher(DIRECT, SIGNALS), pool, loads, 0.0).weights
    assert weights["a"] == weights["b"]
    for memory in ("gpu", "highest"):
        counted = DIRECT.model_copy(update={"memory": memory})
        weights = weigh(Weigher(counted, SIGNALS), pool, loads, 0.0).weights
        assert weights["a"] < weights["b"] / 10


def test_nothing_new_is_no_change_but_still_complete() -> None:
    weigher = Weigher(WeightSettings(), SIGNALS)
    first = weigh(weigher, members(p="ab"), {"a": load(0, 0.9), "b": load(0, 0.2)}, 0.0)
    second = weigh(weigher, members(p="ab"), {"a": load(1, 0.9), "b": load(1, 0.2)}, 1.0)
    assert not second.changed
    assert second.changes == ()
    assert second.weights == first.weights


def test_one_endpoint_without_fresh_signals_gets_the_peers_mean() -> None:
    weigher = Weigher(DIRECT, SIGNALS)
    now = 100.0
    loads = {"a": load(now, 0.2), "b": load(now, 0.5), "c": load(now, 0.8), "stale": load(0.0, 0.99)}
    pool = Membership((Pool("p", tuple(Endpoint(address, "p") for address in loads)),))
    update = weigh(weigher, pool, loads, now)
    assert update.weights["stale"] == update.weights["b"]
    assert update.weights["c"] < update.weights["stale"] < update.weights["a"]
    assert next(change.reason for change in update.changes if change.address == "stale") == "unknown"
    assert not update.blind_pools


def test_no_fresh_signal_makes_equal_weights() -> None:
    weigher = Weigher(WeightSettings(), SIGNALS)
    loads = {"a": load(0, 0.95, 20), "b": load(0, 0.1), "c": load(0, 0.5)}
    update = weigh(weigher, members(p="abc"), loads, 0.0)
    assert len(set(update.weights.values())) == 3
    for tick in range(1, 600):
        update = weigh(weigher, members(p="abc"), loads, tick * 0.25)
    assert max(update.weights.values()) / min(update.weights.values()) < 1.25  # equal within the dead band
    assert update.blind_pools == {"p"}
    assert not update.unhealthy
    direct = weigh(Weigher(DIRECT, SIGNALS), members(p="abc"), loads, 100.0)
    assert set(direct.weights.values()) == {1000}


def test_pool_without_memory_queue_and_running_is_blind() -> None:
    """Whatever Envoys and workers see of its requests: its pages are missing or not understood."""
    numbers = {"in_flight": 3.0, "latency_p50_seconds": 0.1, "latency_p99_seconds": 0.2, "trust_ratio": 1.0}
    loads = {address: Load(**{name: Signal(v, 0.0, "x") for name, v in numbers.items()}) for address in "abc"}
    weigher = Weigher(WeightSettings(), SIGNALS)
    assert weigh(weigher, members(p="ab", q="c"), loads, 0.0).blind_pools == {"p", "q"}
    loads["b"] = replace(loads["b"], running=Signal(0.0, 0.0, "x"))
    assert weigh(weigher, members(p="ab", q="c"), loads, 0.0).blind_pools == {"q"}


@pytest.mark.parametrize("loads", [{}, {"a": load(0, 1.0, 500)}, {"a": load(0, 1.0, up=False)}])
def test_a_pool_of_one_always_keeps_its_endpoint(loads: dict[str, Load]) -> None:
    update = weigh(Weigher(WeightSettings(), SIGNALS), members(p="a"), loads, 5.0)
    assert update.weights == {"a": 1000}
    assert not update.unhealthy


def test_pools_do_not_touch_each_other_and_come_and_go() -> None:
    weigher = Weigher(DIRECT, SIGNALS)
    loads = {"a": load(0, 0.9), "b": load(0, 0.1), "c": load(0, 0.5), "d": load(0, 0.5)}
    both = weigh(weigher, members(p="ab", q="cd"), loads, 0.0)
    assert both.weights["c"] == both.weights["d"] == 1000
    loads["a"] = load(1, 0.1)
    changed = weigh(weigher, members(p="ab", q="cd"), loads, 1.0)
    assert {change.address for change in changed.changes} == {"a", "b"}
    one = weigh(weigher, members(q="cd"), loads, 2.0)
    assert one.changed
    assert set(one.weights) == {"c", "d"}
    assert one.changes == ()
    moved = weigh(weigher, members(q="c", r="d"), loads, 3.0)
    assert moved.weights == {"c": 1000, "d": 1000}


def test_an_empty_pool_is_no_fault() -> None:
    update = weigh(Weigher(WeightSettings(), SIGNALS), members(p="", q="a"), {}, 0.0)
    assert update.weights == {"a": 1000}
    assert update.blind_pools == {"q"}


def test_refused_port_is_unhealthy_until_stale() -> None:
    weigher = Weigher(WeightSettings(), SIGNALS)
    loads = {address: load(0, 0.5) for address in "abcd"}
    weigh(weigher, members(p="abcd"), loads, 0.0)
    loads["b"] = load(0.25, 0.5, up=False)
    down = weigh(weigher, members(p="abcd"), loads, 0.25)
    assert down.changed
    assert down.unhealthy == {"b"}
    assert not weigh(weigher, members(p="abcd"), loads, 0.5).changed
    stale = weigh(weigher, members(p="abcd"), loads, 20.0)
    assert stale.changed
    assert not stale.unhealthy


@pytest.mark.parametrize(
    ("down", "share", "marked"),
    [
        ("", 0.5, ""),
        ("c", 0.5, "c"),
        ("dcb", 0.5, "bc"),  # nearly all look dead: not beyond the cap
        ("dcb", 1.0, "bcd"),
        ("dcb", 0.0, ""),
        ("dcba", 0.5, ""),  # nobody is better: any of them may be the one that serves
        ("dcba", 1.0, ""),
        ("dc", 0.49, "c"),  # rounded down
    ],
)
def test_the_marked_share_is_capped_and_always_the_same(down: str, share: float, marked: str) -> None:
    loads = {address: load(0, 0.5, up=address not in down) for address in "abcd"}
    for order in ("abcd", "dbca"):
        columns = columns_of([loads[address] for address in order])
        assert unhealthy(order, columns, share) == frozenset(marked)


def test_the_cap_is_not_a_rounding_error_short() -> None:
    addresses = [f"e{i}" for i in range(100)]
    loads = {address: load(0, 0.5, up=address == "e99") for address in addresses}
    assert len(unhealthy(addresses, columns_of(list(loads.values())), 0.29)) == 29


def test_other_settings_are_taken_over_while_running() -> None:
    weigher = Weigher(WeightSettings(), SIGNALS)
    loads = {"a": load(0, 0.9), "b": load(0, 0.1)}
    weigh(weigher, members(p="ab"), loads, 0.0)
    flat = StabiliserSettings(smoothing_seconds=0.0, floor_share=1.0)
    weigher.reconfigure(WeightSettings(stabiliser=flat), SIGNALS)
    assert set(weigh(weigher, members(p="ab"), loads, 1.0).weights.values()) == {1000}


def run(
    weigher: Weigher, seconds: int, loads_at: Callable[[int], dict[str, Load]]
) -> list[tuple[float, WeightUpdate]]:
    """Weigh four times a second; returns the updates that changed something."""
    updates = []
    for tick in range(seconds * 4):
        update = weigh(weigher, members(p="abcd"), loads_at(tick // 4), tick * 0.25)
        if update.changed:
            updates.append((tick * 0.25, update))
    return updates


def test_noisy_metrics_push_nothing_for_five_minutes() -> None:
    """Each signal of each endpoint shakes by 10 %, read once a second, around very unequal loads."""
    rng = np.random.default_rng(25)
    around = {"a": (0.1, 0), "b": (0.77, 30), "c": (0.6, 4), "d": (0.4, 4)}

    def loads_at(second: int) -> dict[str, Load]:
        shake = rng.uniform(0.9, 1.1, (4, 2)) if second else np.ones((4, 2))
        return {
            address: load(second, memory * by_memory, queue * by_queue)
            for (address, (memory, queue)), (by_memory, by_queue) in zip(around.items(), shake, strict=True)
        }

    shaken = [loads_at(second) for second in range(300)]
    updates = run(Weigher(WeightSettings(), SIGNALS), 300, lambda second: shaken[second])
    assert [at for at, _ in updates] == [0.0]


def test_a_load_step_settles_with_at_most_one_overshoot() -> None:
    calm = {address: load(1e6, 0.3) for address in "abcd"}
    busy = {**calm, "a": load(1e6, 0.9, 32)}
    updates = run(Weigher(WeightSettings(), SIGNALS), 60, lambda second: calm if second < 10 else busy)
    weights = [update.weights["a"] for _, update in updates]
    turns = sum((b - a) * (c - b) < 0 for a, b, c in zip(weights, weights[1:], weights[2:], strict=False))
    assert turns <= 1
    assert all(later - earlier >= 1.0 for (earlier, _), (later, _) in pairwise(updates))
    target = weigh(Weigher(DIRECT, SIGNALS), members(p="abcd"), busy, 0.0).weights
    assert dict(updates[-1][1].weights) == pytest.approx(dict(target), rel=0.2)
    assert updates[-1][0] < 35


def test_what_a_restart_begins_with_holds_no_override() -> None:
    """An override ends by its own moment, also when the server is away at that moment."""
    weigher, everybody = Weigher(DIRECT, SIGNALS), members(p="ab", q="c")
    loads = {"a": load(0, 0.8), "b": load(0, 0.2), "c": load(0, 0.5)}
    own = dict(weigh(weigher, everybody, loads, 0.0).weights)
    assert weigher.unforced() == own
    forced = weigh(weigher, everybody, loads, 1.0, overrides={"a": 10_000, "gone": 5})
    assert forced.weights["a"] == 10_000
    assert weigher.unforced() == pytest.approx(own, abs=1)

    restarted = Weigher(DIRECT, SIGNALS)
    restarted.restore(everybody, weigher.unforced(), (), 2.0)
    update = weigh(restarted, everybody, {}, 2.0, overrides={"b": 7})
    assert update.weights["b"] == 7
    assert restarted.unforced() == pytest.approx(own, abs=1)
    assert weigh(restarted, everybody, {}, 3.0).weights == pytest.approx(own, abs=1)


def test_changes_are_explained_when_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick may change every weight of a large fleet; traces and decisions read some of them."""
    names = [f"e{number}" for number in range(100)]
    explained: list[int] = []
    endpoint_values = SignalTable.endpoint_values

    def counted(table: SignalTable, column: int) -> dict[str, float]:
        explained.append(column)
        return endpoint_values(table, column)

    monkeypatch.setattr(SignalTable, "endpoint_values", counted)
    pool = Membership((Pool("p", tuple(Endpoint(name, "p") for name in names)),))
    update = weigh(Weigher(DIRECT, SIGNALS), pool, {name: load(0, 0.5) for name in names}, 0.0)
    assert (len(update.changes), explained) == (100, [])
    assert [change.address for change in update.changes[-2:]] == names[-2:]
    assert explained == [98, 99]
