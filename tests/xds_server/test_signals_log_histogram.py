"""Fleet-wide histograms against exact quantiles."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds_server.signals.passive.log_histogram import ENOUGH, RELATIVE_ERROR, SLICES, FleetHistogram

WINDOW = 30.0
SLICE = WINDOW / SLICES
ALL = 10**9


def put(histogram: FleetHistogram, row: int, values: list[float], now: float) -> None:
    histogram.add(np.full(len(values), row), np.array(values), now)


def of(histogram: FleetHistogram, row: int, quantile: float, enough: int = ALL) -> float:
    return float(histogram.quantiles(np.array([row]), (quantile,), enough)[0, 0])


@given(
    st.lists(st.floats(0.001, 3600.0), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0])
)
def test_quantiles_are_within_the_stated_error(values: list[float], quantile: float) -> None:
    """Nearest rank, at most 4.9 % off, whatever the values."""
    histogram = FleetHistogram(3, WINDOW)
    put(histogram, 1, values, 100.0)
    exact = sorted(values)[max(1, ceil(quantile * len(values))) - 1]
    assert of(histogram, 1, quantile) == pytest.approx(exact, rel=RELATIVE_ERROR + 1e-9)
    assert RELATIVE_ERROR < 0.05


def test_rows_do_not_mix_and_unknown_is_nan() -> None:
    """Values stay in their own row."""
    histogram = FleetHistogram(3, WINDOW)
    histogram.add(np.array([0, 2, 0]), np.array([0.1, 5.0, 0.1]), 0.0)
    result = histogram.quantiles(np.arange(3), (0.5, 0.99))
    assert result[0, 0] == pytest.approx(0.1, rel=0.05)
    assert np.isnan(result[1]).all()
    assert result[2, 1] == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 1e9])
def test_values_beyond_the_bounds_count_as_the_bounds(value: float) -> None:
    """Nothing raises and nothing is lost."""
    histogram = FleetHistogram(1, WINDOW)
    put(histogram, 0, [value], 0.0)
    assert of(histogram, 0, 0.5) == (3600.0 if value > 1 else 0.001)


def test_observations_leave_with_the_window() -> None:
    """A value is told while the window holds it, and unknown after."""
    histogram = FleetHistogram(1, WINDOW)
    put(histogram, 0, [1.0], 1000.0)
    histogram.advance(1000.0 + WINDOW - SLICE - 0.1)
    assert of(histogram, 0, 0.5) == pytest.approx(1.0, rel=0.05)
    histogram.advance(1000.0 + WINDOW)
    assert np.isnan(of(histogram, 0, 0.5))


def test_newest_slices_win_once_they_hold_enough() -> None:
    """A slow past is forgotten as soon as enough fast answers have come, not before."""
    histogram = FleetHistogram(1, WINDOW)
    put(histogram, 0, [10.0] * 100, 1000.0)
    later = 1000.0 + 2 * SLICE
    put(histogram, 0, [0.1] * (ENOUGH - 1), later)
    assert of(histogram, 0, 0.99, ENOUGH) == pytest.approx(10.0, rel=0.05)
    put(histogram, 0, [0.1], later)
    assert of(histogram, 0, 0.99, ENOUGH) == pytest.approx(0.1, rel=0.05)


def test_memory_is_fixed_and_bins_do_not_wrap() -> None:
    """However many come, the arrays stay and a full bin stays full."""
    histogram = FleetHistogram(1, WINDOW)
    put(histogram, 0, [2.0], 0.0)
    allocated = histogram.nbytes
    for _ in range(3):
        histogram.add(np.zeros(40_000, np.int64), np.full(40_000, 2.0), 0.0)
    put(histogram, 0, [0.01] * 10, 0.0)
    assert histogram.nbytes == allocated < 5000
    assert of(histogram, 0, 0.5) == pytest.approx(2.0, rel=0.05)


def test_rows_follow_the_membership() -> None:
    """Rows move with their endpoint; newcomers are empty and leavers are gone."""
    histogram = FleetHistogram(2, WINDOW)
    histogram.add(np.array([0, 1]), np.array([1.0, 7.0]), 0.0)
    histogram.remap_rows(np.array([1, -1]))
    assert of(histogram, 0, 0.5) == pytest.approx(7.0, rel=0.05)
    assert np.isnan(of(histogram, 1, 0.5))


def test_rows_without_observations_take_no_memory() -> None:
    """A fleet that a name server makes up costs nothing; rows that leave give their memory back."""
    histogram = FleetHistogram(4000, WINDOW)
    histogram.advance(0.0)
    put(histogram, 3999, [1.0], 0.0)
    put(histogram, 7, [2.0], 0.0)
    two = histogram.nbytes
    assert two < 10_000
    histogram.remap_rows(np.array([3999, *[-1] * 4000]))
    assert histogram.nbytes == two // 2
    put(histogram, 4000, [3.0], 0.0)
    assert of(histogram, 0, 0.5) == pytest.approx(1.0, rel=0.05)
    assert of(histogram, 4000, 0.5) == pytest.approx(3.0, rel=0.05)
    assert np.isnan(of(histogram, 7, 0.5))
