"""The headroom formula, and what unknown signals count as."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest

from fleet.load import Load, Signal
from fleet.settings import HeadroomSettings, WeightSettings
from xds_server.weights.columns import Columns, fill_unknown
from xds_server.weights.headroom import FLOOR_RATIO, reason, scores
from xds_server.weights.strategies import STRATEGIES

SETTINGS = HeadroomSettings()


def load(memory: float | None = None, queue: float | None = None, latency: float | None = None) -> Load:
    held = [None if value is None else Signal(value, 0.0, "test") for value in (memory, queue, latency)]
    return Load(memory_used_ratio=held[0], queue_depth=held[1], latency_p99_seconds=held[2])


def score(*loads: Load) -> list[float]:
    return list(scores(Columns.of(loads), SETTINGS).tolist())


def test_the_score_is_the_documented_formula() -> None:
    (found,) = score(load(0.5, 16, 1.0))
    assert found == pytest.approx(1 / (0.4 * 0.5 + 0.3 * 16 / 32 + 0.3 * 1.0 / 2.0))


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


def test_unknown_counts_as_the_mean_of_the_known_peers() -> None:
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
        (load(0.5, 1e300, 0.2), "queue 1e+300"),
        (load(0.5, 3, 3.2), "p99 3.2 s"),
        (load(queue=3), "queue 3"),
        (load(0.0, 0), "idle"),
        (load(), "unknown"),
    ],
)
def test_the_reason_names_what_takes_most_headroom(given: Load, expected: str) -> None:
    assert reason(given, SETTINGS) == expected


def test_every_strategy_of_the_settings_is_registered_and_equal_without_signals() -> None:
    settings = WeightSettings()
    assert settings.strategy in STRATEGIES
    for strategy in STRATEGIES.values():
        found = strategy.scores(Columns.of([load()] * 4), settings)
        assert found.shape == (4,)
        assert len(set(found.tolist())) == 1
        assert (found > 0).all()
        assert strategy.reason(load(), settings) == "unknown"
