"""Forecasts of load signals: bounds, unknown signals, learning, and the choice among models."""

from __future__ import annotations

import json
from functools import partial
from math import nan
from typing import TYPE_CHECKING

import numpy as np
import pytest

from fleet.settings.load import parse_settings
from fleet.signals import Source
from testing.signals import Load, Signal, table_of
from xds_server.signals.forecast.forecaster import (
    SAMPLE_SECONDS,
    TARGETS,
    SignalForecaster,
    forecast_horizon,
)
from xds_server.signals.forecast.history import MOST_CELLS, History
from xds_server.signals.forecast.linear import Linear
from xds_server.signals.forecast.quantiles import QUANTILES, pinball, slope
from xds_server.signals.forecast.tcn import Tcn

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.signals import SignalTable
    from xds_server.signals.forecast.quantiles import Array

STALE = 10.0


class Fleet:
    """A forecaster of some endpoints' loads, over time."""

    def __init__(self, addresses: tuple[str, ...] = ("a", "b"), horizon_seconds: float = 2.0) -> None:
        self.forecaster = SignalForecaster(horizon_seconds, STALE)
        self.addresses = addresses
        self.now = 100.0

    def sample(self, age: float = 0.0, **queues: float) -> SignalTable:
        """Take one sample: an endpoint's queue, with as much running and a hundredth of memory."""
        self.now += SAMPLE_SECONDS
        at = self.now - age
        loads = {
            address: Load(
                queue_depth=Signal(queue, at, "scrape"),
                running=Signal(queue, at, "scrape"),
                memory_used_ratio=Signal(min(queue / 100, 1.0), at, "scrape"),
            )
            for address, queue in queues.items()
        }
        return self.forecaster.add_to(table_of(self.addresses, loads), self.now)

    def wave(self, samples: int, queue_at: Callable[[int], float]) -> list[SignalTable]:
        return [self.sample(a=queue_at(n), b=queue_at(n + 3)) for n in range(samples)]


def square(n: int) -> float:
    """Two seconds empty, two with a queue."""
    return 20.0 if n % 8 < 4 else 0.0


def test_without_training_the_last_value_is_the_forecast() -> None:
    table = Fleet().sample(a=7.0, b=40.0)
    for name in TARGETS:
        for quantile in ("p50", "p90"):
            assert table[f"{name}_forecast_{quantile}"] == pytest.approx(table[name])
    assert table.sources[-6:].tolist() == [[Source.FORECAST] * 2] * 6


def test_an_unknown_or_stale_signal_has_no_forecast() -> None:
    fleet = Fleet()
    for _ in range(60):
        table = fleet.sample(a=7.0)
    assert table["queue_depth_forecast_p50"].tolist() == pytest.approx([7.0, nan], nan_ok=True)
    assert table.sources[-6:, 1].tolist() == [Source.NONE] * 6
    stale = fleet.sample(age=STALE + 1.0, a=7.0)
    assert np.isnan(stale["queue_depth_forecast_p50"]).all()


def test_a_forecast_is_as_old_as_its_signal() -> None:
    fleet = Fleet()
    table = fleet.sample(age=3.0, a=7.0, b=1.0)
    assert table.at("queue_depth_forecast_p90").tolist() == [fleet.now - 3.0] * 2


@pytest.mark.untraced
def test_a_period_is_learned_and_beats_the_last_value() -> None:
    fleet = Fleet()
    fleet.wave(400, square)
    tables = fleet.wave(64, square)
    came = np.array([[square(n + 4), square(n + 7)] for n in range(64)])
    forecast = np.array([table["queue_depth_forecast_p50"] for table in tables])
    last = np.array([table["queue_depth"] for table in tables])
    assert np.abs(forecast - came).mean() < 0.5 * np.abs(last - came).mean()
    assert (fleet.forecaster.choice > 0).any()


@pytest.mark.untraced
def test_on_noise_p90_covers_nine_of_ten_and_bounds_hold() -> None:
    fleet, draw = Fleet(), np.random.default_rng(3)
    queues = draw.poisson(5.0, 600)
    tables = fleet.wave(590, lambda n: float(queues[n]))
    came = queues[304:593]
    forecast = np.array([table["queue_depth_forecast_p90"][0] for table in tables[300:589]])
    assert 0.8 < (came <= forecast).mean() < 0.97
    for table in tables:
        for name in TARGETS:
            low, high = table[f"{name}_forecast_p50"], table[f"{name}_forecast_p90"]
            assert (low <= high).all()
            assert (low >= 0).all()
        assert (table["memory_used_ratio_forecast_p90"] <= 1).all()


def test_equal_inputs_give_equal_forecasts() -> None:
    one, other = (Fleet().wave(120, square)[-1] for _ in range(2))
    assert np.array_equal(one.values, other.values, equal_nan=True)


def test_endpoints_that_stay_keep_their_choice() -> None:
    fleet = Fleet()
    fleet.wave(150, square)
    choice = fleet.forecaster.choice[0].tolist()
    fleet.addresses = ("new", "a")
    table = fleet.sample(a=square(150), new=9.0)
    assert fleet.forecaster.choice.tolist() == [np.zeros_like(choice).tolist(), choice]
    assert table["queue_depth_forecast_p50"][0] == pytest.approx(9.0), "a newcomer's is its last value"


def test_absurd_numbers_stay_with_their_endpoint() -> None:
    fleet = Fleet()
    for n in range(200):
        table = fleet.sample(a=square(n), b=1e300 if n % 3 else 0.0)
    assert np.isfinite(table["queue_depth_forecast_p90"]).all()
    assert table["queue_depth_forecast_p50"][0] < 100.0


def test_rare_ticks_count_as_no_change_between_them() -> None:
    fleet = Fleet()
    fleet.sample(a=1.0, b=1.0)
    fleet.now += 3 * SAMPLE_SECONDS
    fleet.sample(a=2.0, b=2.0)
    history = fleet.forecaster._history
    assert history.at(np.arange(history.count), 0)[:, 0].tolist() == [2.0, 1.0, 1.0, 1.0, 1.0]


def test_rare_ticks_judge_a_forecast_at_its_own_time() -> None:
    """Every four seconds the queue is the same again, and two seconds after a forecast it never is."""
    fleet = Fleet()
    for n in range(0, 200, 2):
        fleet.sample(a=square(n), b=square(n))
        fleet.now += SAMPLE_SECONDS
    assert (fleet.forecaster.losses[:, 0, 0] > 0.1).all()


def test_the_history_of_a_large_fleet_is_bounded() -> None:
    history = History(3, 20)
    history.remap_rows(np.full(5_000, -1))
    for n in range(200):
        history.add(np.full((5_000, 3), n, np.float32))
    assert history.count == MOST_CELLS // 5_000
    history.remap_rows(np.array([17, -1]))
    kept = history.at(np.arange(3), 0)[:, 0].tolist(), history.at(np.arange(1), 1)[:, 0].tolist()
    assert kept == ([199.0, 198.0, 197.0], pytest.approx([nan], nan_ok=True))


def mean_slope(truth: Array, outputs: Array) -> Array:
    result: Array = slope(truth - outputs) / np.float32(len(outputs))
    return result


def test_the_network_learns_what_no_linear_model_can() -> None:
    draw = np.random.default_rng(5)
    linear, network = Linear(4, 1, 2), Tcn(4, 1, 2, seed=1)

    def batch() -> tuple[Array, Array]:
        windows = draw.standard_normal((4, 128, 1)).astype(np.float32)
        return windows, np.abs(windows[-1] - windows[0])

    for _ in range(400):
        windows, truth = batch()
        for model in (linear, network):
            model.learn(windows, partial(mean_slope, truth))
    windows, truth = batch()
    assert pinball(truth - network(windows)).mean() < 0.6 * pinball(truth - linear(windows)).mean()


def test_the_slope_is_that_of_the_pinball_loss() -> None:
    errors = np.array([[-2.0, -2.0], [3.0, 3.0]], np.float32)
    step = np.float32(0.25)
    rise = (pinball(errors - step) - pinball(errors)) / step
    assert slope(errors) == pytest.approx(rise)
    assert slope(np.full((1, 2), nan, np.float32)).tolist() == [[0.0, 0.0]]
    assert pinball(errors)[1] == pytest.approx(3.0 * QUANTILES)


@pytest.mark.parametrize(
    ("strategy", "admission", "horizon", "expected"),
    [
        ("headroom", {}, 2.0, 0.0),
        ("predictive", {}, 2.0, 2.0),
        ("headroom", {"most_queue": 5}, 3.0, 3.0),
        ("predictive", {}, 0.0, 0.0),
    ],
)
def test_forecasts_are_made_where_something_uses_them(
    strategy: str, admission: dict[str, int], horizon: float, expected: float
) -> None:
    written = {
        "pools": [{"name": "p", "endpoints": [{"address": "10.0.0.1:80"}]}],
        "listeners": [{"name": "l", "address": "127.0.0.1:9", "pool": "p"}],
        "weights": {"strategy": strategy, "forecast": {"horizon_seconds": horizon}},
        "ext_proc": {"pick": {"admission": admission}},
    }
    assert forecast_horizon(parse_settings(json.dumps(written))) == expected
