"""Every strategy by its formula, and what must be true of all of them."""

from __future__ import annotations

from math import exp, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.settings import WeightSettings
from fleet.settings.weights import BalancedSettings, P99Settings, PredictiveSettings
from testing.signals import Load, Signal
from tests.xds_server.tables import columns_of
from xds_server.weights import balanced, p99, predictive
from xds_server.weights.columns import Peers
from xds_server.weights.stabiliser import Stabiliser
from xds_server.weights.strategies import STRATEGIES

FIELDS = (
    "memory_used_ratio",
    "queue_depth",
    "running",
    "in_flight",
    "latency_p50_seconds",
    "latency_p99_seconds",
    "prefix_hit_ratio",
)
loads = st.builds(
    lambda values: load(
        **{name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
    ),
    st.tuples(
        *[
            st.none() | st.floats(0, highest, allow_subnormal=False)
            for highest in (1.0, 1e4, 1e4, 1e4, 1e4, 1e4, 1.0)
        ]
    ),
)


def load(**values: float) -> Load:
    return Load(**{name: Signal(float(value), 0.0, "test") for name, value in values.items()})


def scores(strategy: str, *given: Load, **settings: Any) -> list[float]:
    chosen = WeightSettings(strategy=strategy, **settings)  # type: ignore[arg-type]
    return list(STRATEGIES[strategy].scores(columns_of(given, chosen.memory), chosen).tolist())


def test_p99_is_full_up_to_the_tolerance_and_then_falls() -> None:
    settings = P99Settings(baseline_seconds=1.0)
    given = [load(latency_p99_seconds=value) for value in (0.1, 1.1, 1.2, 1.5, 3.0, 14.9, 1e6)]
    result = p99.scores(columns_of(given), settings).tolist()
    assert result == pytest.approx([100, 100, 100, 100, 50, 150 / 14.9, 10])


def test_p99_without_a_baseline_takes_the_pools_median() -> None:
    result = scores("p99", *(load(latency_p99_seconds=value) for value in (0.5, 0.5, 0.6, 2.0, 0.55)))
    assert result == pytest.approx([100, 100, 100, 100 * 1.5 * 0.55 / 2.0, 100])


def test_predictive_is_free_memory_times_latency_left() -> None:
    given = load(memory_used_ratio=0.4, queue_depth=6, running=3, latency_p50_seconds=0.5)
    assert scores("predictive", given) == pytest.approx([0.6 * (1 - 0.5 * (1 + 6 / 3) / 5.0)])
    late = load(memory_used_ratio=0.4, queue_depth=60, running=0, latency_p50_seconds=0.5)
    assert scores("predictive", late) == pytest.approx([0.6 * 0.01]), "latency never takes all"
    no_median = load(memory_used_ratio=0.4, queue_depth=0, running=3, latency_p99_seconds=2.5)
    assert scores("predictive", no_median) == pytest.approx([0.6 * 0.5])


def test_predictive_looks_ahead_where_there_are_forecasts() -> None:
    now = {"memory_used_ratio": 0.4, "queue_depth": 6, "running": 3, "latency_p50_seconds": 0.5}
    ahead = {
        "memory_used_ratio_forecast_p90": 0.5,
        "queue_depth_forecast_p90": 2,
        "running_forecast_p90": 4,
    }
    assert scores("predictive", load(**now, **ahead)) == pytest.approx([0.5 * (1 - 0.5 * (1 + 2 / 4) / 5.0)])
    not_counted = load(**now, **ahead, in_flight=11)
    expected = [0.5 * (1 - 0.5 * (1 + 4 / 4) / 5.0)]
    assert scores("predictive", not_counted) == pytest.approx(expected), "two more are on their way"
    gpu = load(**now, **ahead, gpu_memory_used_ratio=0.2)
    expected = [0.8 * (1 - 0.5 * (1 + 2 / 4) / 5.0)]
    assert scores("predictive", gpu, memory="gpu") == pytest.approx(expected), "forecasts are the KV cache's"


def test_balanced_is_a_softmax_of_three_normalised_values() -> None:
    one = load(memory_used_ratio=0.2, latency_p99_seconds=0.5, prefix_hit_ratio=0.8)
    other = load(memory_used_ratio=0.6, latency_p99_seconds=9.0, prefix_hit_ratio=0.1)
    values = (0.4 * 0.75 + 0.35 * 0.8 + 0.25 * 0.8, 0.4 * 0.0 + 0.35 * 0.4 + 0.25 * 0.1)
    powers = [exp(value / 0.2) for value in values]
    assert scores("balanced", one, other) == pytest.approx([power / sum(powers) for power in powers])


def test_a_temperature_near_nothing_is_no_overflow() -> None:
    given = [load(memory_used_ratio=memory) for memory in (0.0, 1.0)]
    result = balanced.scores(columns_of(given), BalancedSettings(temperature=0.01)).tolist()
    assert result[0] == pytest.approx(1.0)
    assert 0 <= result[1] < 1e-9


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(given=st.lists(loads, max_size=8))
def test_scores_are_finite_and_no_less_than_nothing(strategy: str, given: list[Load]) -> None:
    result = scores(strategy, *given)
    assert len(result) == len(given)
    assert np.isfinite(result).all()
    assert all(score >= 0 for score in result)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(given=st.lists(loads, min_size=2, max_size=8), turn=st.integers(1, 7))
def test_scores_are_equal_for_equal_loads_in_any_order(strategy: str, given: list[Load], turn: int) -> None:
    turn %= len(given)
    straight, turned = scores(strategy, *given), scores(strategy, *given[turn:], *given[:turn])
    assert turned == pytest.approx(straight[turn:] + straight[:turn], rel=1e-9, abs=1e-300)
    one, same, *_ = scores(strategy, given[0], given[0], *given[1:])
    assert one == same


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "worse",
    [
        {"memory_used_ratio": 0.9},
        {"queue_depth": 30},
        {"latency_p50_seconds": 4.0, "latency_p99_seconds": 4.0},
    ],
)
@settings(deadline=None)
@given(other=loads)
def test_more_load_is_never_a_higher_score(strategy: str, worse: dict[str, float], other: Load) -> None:
    calm = {"memory_used_ratio": 0.3, "queue_depth": 1, "running": 4, "latency_p50_seconds": 0.2}
    calm |= {"latency_p99_seconds": 0.4, "prefix_hit_ratio": 0.5}
    better, low, _ = scores(strategy, load(**calm), load(**calm | worse), other)
    assert low <= better


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_unknown_counts_as_the_peers_mean(strategy: str) -> None:
    calm = {"queue_depth": 1, "running": 4, "latency_p50_seconds": 0.2, "prefix_hit_ratio": 0.5}
    calm |= {"latency_p99_seconds": 0.4}
    few, middle, many, unknown = scores(
        strategy,
        *(load(**calm, memory_used_ratio=memory) for memory in (0.2, 0.4, 0.6)),
        load(**calm),
    )
    assert few >= unknown >= many
    assert unknown == pytest.approx(middle)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(deadline=None)
@given(given=st.lists(loads, min_size=1, max_size=8))
def test_whatever_the_loads_shares_sum_to_one_within_the_caps(strategy: str, given: list[Load]) -> None:
    settings = WeightSettings()
    addresses = [str(number) for number in range(len(given))]
    columns = columns_of(given)
    stabiliser = Stabiliser(settings.stabiliser)
    chosen = STRATEGIES[strategy].scores(columns, settings)
    stabiliser.step(addresses, chosen, 0.0, idle=columns.idle())
    shares = stabiliser.shares
    assert shares.sum() == pytest.approx(1.0)
    assert shares.max() <= settings.stabiliser.most_fair_ratio / len(given) + 1e-9
    assert shares.min() >= settings.stabiliser.floor_share / len(given) - 1e-9
    assert shares.max() <= settings.stabiliser.ratio_cap * shares.min() * (1 + 1e-9)


def test_reasons_name_the_signal_that_takes_most() -> None:
    busy = load(memory_used_ratio=0.9, latency_p99_seconds=0.2, prefix_hit_ratio=0.5)
    slow = load(memory_used_ratio=0.1, latency_p50_seconds=1.0, queue_depth=12, running=4)
    columns = columns_of([busy, slow, load(prefix_hit_ratio=0.05), Load()])
    assert predictive.reason(columns, 0, PredictiveSettings()) == "memory 0.90"
    assert predictive.reason(columns, 1, PredictiveSettings()) == "predicted 4 s"
    assert balanced.reason(columns, 0, BalancedSettings()) == "memory 0.90"
    assert balanced.reason(columns, 2, BalancedSettings()) == "prefix hits 0.05"
    assert p99.reason(columns, 0, P99Settings()) == "p99 0.2 s"
    assert p99.reason(columns, 0, P99Settings(baseline_seconds=0.1)) == "p99 0.2 s, 2 x baseline"
    for strategy in STRATEGIES.values():
        assert strategy.reason(columns, 3, WeightSettings(), Peers()) == "unknown"


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("kv", [0.3, nan, 0.5]),
        ("gpu", [0.9, 0.8, nan]),
        ("highest", [0.9, 0.8, 0.5]),
    ],
)
def test_the_setting_says_which_memory_counts(memory: Any, expected: list[float]) -> None:
    given = [
        load(memory_used_ratio=0.3, gpu_memory_used_ratio=0.9),
        load(gpu_memory_used_ratio=0.8),
        load(memory_used_ratio=0.5),
    ]
    result = columns_of(given, memory).memory_used_ratio.tolist()
    assert result == pytest.approx(expected, nan_ok=True)


def test_uncounted_requests_wait_in_the_queue() -> None:
    given = [
        load(queue_depth=2, running=3, in_flight=9),
        load(queue_depth=2, running=3, in_flight=1),
        load(queue_depth=2, in_flight=9),
        load(running=3, in_flight=9),
    ]
    assert columns_of(given).waiting.tolist() == pytest.approx([6, 2, 2, nan], nan_ok=True)


def test_stale_signals_are_unknown() -> None:
    one = Load(memory_used_ratio=Signal(0.5, 1.0, "test"), queue_depth=Signal(3.0, 9.0, "test"))
    columns = columns_of([one], oldest=5.0)
    assert columns.memory_used_ratio.tolist() == pytest.approx([nan], nan_ok=True)
    assert columns["queue_depth"].tolist() == [3.0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_numbers_beyond_all_measure_overflow_nothing(strategy: str) -> None:
    """A page may tell any finite number; sums and products of several must stay finite too."""
    wild = {"queue_depth": 1e308, "running": 1e300, "in_flight": 1e308}
    wild |= {"latency_p50_seconds": 1e300, "latency_p99_seconds": 1.7e308}
    result = scores(
        strategy, load(**wild), load(**wild), load(latency_p99_seconds=0.1, queue_depth=1), load()
    )
    assert np.isfinite(result).all()
    assert result[2] >= max(result[:2])
