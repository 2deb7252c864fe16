"""Windows over cumulative values: quantiles, ratios, restarts, unknowns."""

from __future__ import annotations

from math import inf, nan
from statistics import pvariance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds_server.signals.scrape.histogram import (
    ENOUGH_FOR_MEDIAN,
    ENOUGH_OBSERVATIONS,
    CounterWindow,
    Growth,
    HistogramWindow,
    bucket_quantile,
    bucket_variance,
)

BOUNDS = (0.1, 1.0, 10.0, inf)


def deltas_of(window: CounterWindow, now: float) -> list[float] | None:
    growth = window.growth(now)
    return None if growth is None else growth.deltas


@pytest.mark.parametrize(
    ("q", "counts", "expected"),
    [
        (0.5, (0, 10, 10, 10), 0.1 + 0.9 * 0.5),  # within the bucket
        (0.99, (100, 100, 100, 100), 0.099),  # the first bucket begins at 0
        (0.99, (0, 0, 1, 100), 10.0),  # +Inf answers the highest finite bound
        (1.0, (0, 4, 8, 8), 10.0),
        (0.5, (4, 4, 8, 8), 0.1),  # a rank on a bound is that bound
    ],
)
def test_the_quantile_follows_prometheus_rule(q: float, counts: tuple[float, ...], expected: float) -> None:
    assert bucket_quantile(q, BOUNDS, counts) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bounds", "counts"), [((1.0, inf), (0, 0)), ((1.0, 2.0), (1, 2)), ((inf,), (3,)), ((), ())]
)
def test_without_observations_or_usable_bounds_it_is_unknown(
    bounds: tuple[float, ...], counts: tuple[float, ...]
) -> None:
    assert bucket_quantile(0.99, bounds, counts) is None


@given(st.lists(st.integers(0, 50), min_size=4, max_size=4), st.floats(0.01, 1))
def test_the_quantile_stays_within_the_finite_bounds(counts: list[int], q: float) -> None:
    cumulative = [float(sum(counts[: i + 1])) for i in range(4)]
    estimate = bucket_quantile(q, BOUNDS, cumulative)
    assert (estimate is None) == (cumulative[-1] == 0)
    assert estimate is None or 0 <= estimate <= 10.0


def test_only_the_window_counts() -> None:
    """Slow requests of long ago are forgotten, however many there were."""
    window = HistogramWindow(30.0)
    window.observe(BOUNDS, (0, 0, 1000, 1000), 0.0)
    assert window.quantile(0.99, 0.0) is None  # what happened before the first page is not the window's
    window.observe(BOUNDS, (0, 0, 2000, 2000), 1.0)
    slow = window.quantile(0.99, 1.0)
    assert slow is not None
    assert slow > 9
    for second in range(2, 40):
        window.observe(BOUNDS, (second, second, 2000 + second, 2000 + second), float(second))
    fast = window.quantile(0.99, 39.0)
    assert fast is not None
    assert fast <= 0.1


def test_a_window_without_requests_is_unknown_not_zero() -> None:
    window = HistogramWindow(10.0)
    for second in range(30):
        window.observe(BOUNDS, (5, 5, 5, 5), float(second))
        assert window.quantile(0.99, float(second)) is None


def test_a_restarted_engine_starts_the_window_again() -> None:
    window = HistogramWindow(30.0)
    window.observe(BOUNDS, (0, 0, 0, 0), 0.0)
    window.observe(BOUNDS, (0, 0, 100, 100), 1.0)
    window.observe(BOUNDS, (2, 2, 2, 2), 2.0)  # counters fell
    assert window.quantile(0.99, 2.0) is None
    window.observe(BOUNDS, (12, 12, 12, 12), 3.0)
    assert window.quantile(0.99, 3.0) == pytest.approx(0.099)


def test_other_bounds_or_series_start_the_window_again() -> None:
    window = HistogramWindow(30.0)
    window.observe(BOUNDS, (0, 0, 0, 0), 0.0, "a")
    window.observe((0.2, inf), (50.0, 100.0), 1.0, "a")
    assert window.quantile(0.5, 1.0) is None
    window.observe((0.2, inf), (60.0, 110.0), 2.0, "a")
    assert window.quantile(0.5, 2.0) == pytest.approx(0.1)
    window.observe((0.2, inf), (6000.0, 9000.0), 3.0, "a and b")
    assert window.quantile(0.5, 3.0) is None


def test_a_gap_as_long_as_the_window_starts_it_again() -> None:
    window = CounterWindow(10.0)
    window.observe([0.0], 0.0)
    window.observe([5.0], 1.0)
    assert deltas_of(window, 1.0) == [5.0]
    assert deltas_of(window, 12.0) is None  # nothing observed lately
    window.observe([100.0], 20.0)
    assert deltas_of(window, 20.0) is None  # 95 happened over 19 seconds, not in this window
    window.observe([101.0], 21.0)
    assert deltas_of(window, 21.0) == [1.0]


@pytest.mark.parametrize("interval", [0.01, 0.5, 1.0, 3.0])
def test_the_window_is_at_most_a_tenth_longer_and_memory_bounded(interval: float) -> None:
    window = CounterWindow(30.0)
    steps = int(100 / interval)
    for i in range(steps):
        window.observe([i * interval], i * interval)  # a value that grows by 1 a second
        assert len(window._baselines) <= 13
    deltas = deltas_of(window, (steps - 1) * interval)
    assert deltas is not None
    assert 30.0 - 1e-6 <= deltas[0] <= 33.0 + interval


def test_a_non_finite_vector_is_skipped() -> None:
    window = CounterWindow(10.0)
    window.observe([1.0], 0.0)
    window.observe([nan], 1.0)
    window.observe([4.0], 2.0)
    assert deltas_of(window, 2.0) == [3.0]


def test_the_newest_slices_count_first() -> None:
    """An engine that was slow is fast again two busy seconds later, and not a window later."""
    window = HistogramWindow(30.0)
    for second in range(20):
        window.observe(BOUNDS, (0, 0, 15 * second, 15 * second), float(second))
    slow = window.quantile(0.5, 19.0)
    assert slow is not None
    assert slow > 1
    for second in range(20, 23):
        fast = 15 * (second - 19)
        window.observe(BOUNDS, (fast, fast, 285 + fast, 285 + fast), float(second))
    assert window.quantile(0.99, 22.0) == pytest.approx(0.099)


def test_few_observations_are_taken_from_the_whole_window() -> None:
    window = HistogramWindow(30.0)
    for second in range(20):
        fast = second // 2
        window.observe(BOUNDS, (fast, fast, fast, second), float(second))
    assert window.quantile(1.0, 19.0) == 10.0  # half of the nineteen are beyond the bounds
    assert window.quantile(0.4, 19.0) is not None


@given(st.lists(st.tuples(st.floats(0.01, 4), st.integers(0, 30)), min_size=2, max_size=60))
def test_newest_slices_hold_enough_and_at_most_the_window(
    steps: list[tuple[float, int]],
) -> None:
    window = CounterWindow(30.0, 30)
    now = count = 0.0
    for seconds, more in steps:
        now, count = now + seconds, count + more
        window.observe([count], now)
    newest, whole = window.growth(now, ENOUGH_OBSERVATIONS), window.growth(now)
    assert newest is not None
    assert whole is not None
    assert newest.deltas[0] <= whole.deltas[0]
    assert newest.seconds <= whole.seconds
    assert newest.deltas[0] >= min(ENOUGH_OBSERVATIONS, whole.deltas[0])


def test_growth_tells_over_how_long() -> None:
    window = CounterWindow(10.0)
    window.observe([0.0, 5.0], 1.0)
    assert window.growth(1.0) is None
    window.observe([4.0, 5.0], 3.0)
    assert window.growth(3.0) == Growth([4.0, 0.0], 2.0)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((0, 0, 0, 0), None),
        ((4, 4, 4, 4), 0.0),
        ((1, 1, 2, 2), ((5.5 - 0.05) / 2) ** 2),  # middles 0.05 and 5.5
        ((0, 0, 0, 3), 0.0),  # the +Inf bucket is one point
    ],
)
def test_the_variance_is_that_of_the_buckets_middles(
    counts: tuple[float, ...], expected: float | None
) -> None:
    estimate = bucket_variance(BOUNDS, counts)
    assert estimate == (None if expected is None else pytest.approx(expected))


@given(st.lists(st.floats(0, 999), min_size=1, max_size=200))
def test_the_estimated_variance_is_near_the_true_one(lengths: list[float]) -> None:
    """Within what buckets of 100 can hide: each length is at most 50 off."""
    bounds = (*(100.0 * i for i in range(1, 11)), inf)
    counts = [float(sum(length <= bound for length in lengths)) for bound in bounds]
    estimate = bucket_variance(bounds, counts)
    assert estimate is not None
    assert abs(estimate**0.5 - pvariance(lengths) ** 0.5) <= 50 + 1e-6


def test_a_median_forgets_sooner_than_a_tail() -> None:
    """An engine that was slow gets little: a few fast answers show in its median, and in its P99 later."""
    window, last = HistogramWindow(30.0), 20 + ENOUGH_FOR_MEDIAN // 2
    for second in range(last + 1):
        fast = float(max(0, second - 19))
        window.observe(BOUNDS, (fast, second + 1.0, second + 1.0, second + 1.0), float(second))
    median, slowest = (window.quantile(share, last) for share in (0.5, 0.99))
    assert median is not None
    assert slowest is not None
    assert median <= 0.1 < slowest
