"""The headroom formula, and what unknown signals count as."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest

from fleet.columns import fill_unknown
from fleet.settings import HeadroomSettings, WeightSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import columns_of
from xds_server.weights.columns import Peers
from xds_server.weights.headroom import FLOOR_RATIO, reason, scores
from xds_server.weights.strategies import STRATEGIES

SETTINGS = HeadroomSettings()


def load(memory: float | None = None, queue: float | None = None, latency: float | None = None) -> Load:
    signals = [None if value is None else Signal(value, 0.0, "test") for value in (memory, queue, latency)]
    return Load(memory_used_ratio=signals[0], queue_depth=signals[1], latency_p99_seconds=signals[2])


def score(*loads: Load) -> list[float]:
    return list(scores(columns_of(loads), SETTINGS).tolist())


def test_the_score_is_the_documented_formula() -> None:
    (result,) = score(load(0.5, 16, 1.0))
    assert result == pytest.approx(1 / (0.4 * 0.5 + 0.3 * 16 / 32 + 0.3 * 1.0 / 2.0))


def at(p50: float | None, p99: float | None) -> Load:
    """An engine with a little load, and these times to its first token."""
    signals = [None if value is None else Signal(value, 0.0, "test") for value in (p50, p99)]
    return replace(load(0.1, 1), latency_p50_seconds=signals[0], latency_p99_seconds=signals[1])


def formula(p99: float) -> float:
    return 1 / (0.4 * 0.1 + 0.3 * 1 / 32 + 0.3 * p99 / 2.0)


@pytest.mark.parametrize("size", [2, 4, 5])
def test_slower_than_peers_is_slow_at_any_latency(size: int) -> None:
    """Ten times 10 ms is nothing against a reference of 2 s, and a tenth of what its peers can do."""
    *peers, slow = score(*[at(0.006, 0.01)] * (size - 1), at(0.06, 0.1))
    assert peers == pytest.approx([formula(0.01)] * (size - 1))
    assert slow < peers[0] / 4


def test_formula_stands_without_a_much_slower_engine() -> None:
    """Up to one and a half times; a fast one among slow ones makes none of these slow."""
    even = [(0.05, 0.2), (0.06, 0.25), (0.07, 0.3), (0.05, 0.21)]
    assert score(*(at(*times) for times in even)) == pytest.approx([formula(p99) for _, p99 in even])
    mixed = [(0.005, 0.02), *[(0.05, 0.2)] * 3]
    assert score(*(at(*times) for times in mixed)) == pytest.approx([formula(p99) for _, p99 in mixed])


def test_a_long_prompt_makes_no_engine_slow() -> None:
    """It is in the P99 for a while, and not in the P50."""
    result = score(at(0.05, 1.5), *[at(0.05, 0.1)] * 3)
    assert result == pytest.approx([formula(1.5), *[formula(0.1)] * 3])


def test_slowness_needs_signals_and_can_be_switched_off() -> None:
    assert score(at(None, 0.1), at(None, 0.01), at(None, 0.01))[0] < formula(0.01) / 4
    one, unknown = score(at(0.1, None), at(None, None))
    assert one == unknown, "without a P99 nothing counts"
    off = HeadroomSettings(slow_ratio=None)
    assert scores(columns_of([at(0.06, 0.1), at(0.006, 0.01)]), off).tolist() == pytest.approx(
        [formula(0.1), formula(0.01)]
    )


def test_the_reason_says_how_slow_an_engine_is() -> None:
    peers = columns_of([at(0.006, 0.01)] * 3).peers()
    assert reason(columns_of([at(0.06, 0.1)]), 0, SETTINGS, peers) == "p99 0.1 s, 10 x the pool's"
    assert reason(columns_of([at(0.006, 0.01)]), 0, SETTINGS, peers) == "memory 0.10"


def test_each_signal_is_cut_off_at_its_reference() -> None:
    assert score(load(7.0, 1e9, 500.0)) == pytest.approx([1.0])


def test_an_idle_endpoint_is_no_division_by_zero_and_bounded() -> None:
    idle, full = score(load(0.0, 0, 0.0), load(1.0, 32, 2.0))
    assert idle / full == pytest.approx(1 / FLOOR_RATIO)


def test_more_of_any_signal_is_never_a_higher_score() -> None:
    rng = np.random.default_rng(7)
    for memory, queue, latency in rng.uniform(0, 1, (50, 3)) * [1, 40, 3]:
        base, *more = score(
            load(memory, queue, latency),
            load(memory + 0.1, queue, latency),
            load(memory, queue + 4, latency),
            load(memory, queue, latency + 0.2),
        )
        assert all(other <= base for other in more)


def test_unknown_counts_as_the_mean_of_the_peers() -> None:
    assert fill_unknown(np.array([0.2, nan, 0.6])).tolist() == pytest.approx([0.2, 0.4, 0.6])
    best, unknown, worst = score(load(0.1, 1, 0.1), load(), load(0.9, 30, 1.9))
    assert worst < unknown < best
    assert unknown == score(load(0.5, 15.5, 1.0))[0]


def test_all_unknown_is_equal() -> None:
    assert len(set(score(load(), load(), load()))) == 1
    one_column = score(load(memory=0.5), load(memory=0.5))
    assert one_column[0] == one_column[1]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (load(0.93, 3, 0.2), "memory 0.93"),
        (load(0.5, 41, 0.2), "queue 41"),
        (load(0.5, 1e300, 0.2), "queue 1e+12"),
        (load(0.5, 3, 3.2), "p99 3.2 s"),
        (load(queue=3), "queue 3"),
        (load(0.0, 0), "idle"),
        (load(), "unknown"),
    ],
)
def test_the_reason_names_what_takes_most_headroom(given: Load, expected: str) -> None:
    assert reason(columns_of([given]), 0, SETTINGS, Peers()) == expected


def test_every_strategy_is_equal_without_signals() -> None:
    settings = WeightSettings()
    assert settings.strategy in STRATEGIES
    for strategy in STRATEGIES.values():
        result = strategy.scores(columns_of([load()] * 4), settings)
        assert result.shape == (4,)
        assert len(set(result.tolist())) == 1
        assert (result > 0).all()
        assert strategy.reason(columns_of([load()]), 0, settings, Peers()) == "unknown"


def test_signal_of_one_endpoint_copies_no_column() -> None:
    """Every changed endpoint of a large fleet gets its reason in the same tick."""
    columns = columns_of([at(0.006, 0.01)] * 4)
    assert np.shares_memory(columns["latency_p99_seconds"], columns.signals.values)
