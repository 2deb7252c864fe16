"""Extremes fade where nothing runs; what returns waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from xds_server.signals.decay import PageTimes, fade

ONE_POOL = np.zeros(3, np.int64)


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


def test_an_extreme_value_fades_to_the_mean_of_the_others() -> None:
    """With the time constant; peers keep theirs."""
    values = column(10.0, 1.0, 3.0)
    idle = np.array([15.0, 100.0, 0.0])
    faded = fade(values, idle, ONE_POOL, 15.0)[:, 0]
    assert faded[0] == pytest.approx(2.0 + 8.0 * np.exp(-1))
    assert faded[1:].tolist() == [1.0, 3.0]
    assert fade(values, np.array([1e6, 0, 0]), ONE_POOL, 15.0)[0, 0] == pytest.approx(2.0)


def test_a_value_counts_in_full_while_something_runs_there() -> None:
    """Requests of ours there, or nobody knows: the value is true."""
    values = column(10.0, 1.0, 3.0)
    assert fade(values, np.zeros(3), ONE_POOL, 15.0)[0, 0] == 10.0
    assert fade(values, np.array([50.0, 0, 0]), ONE_POOL, 0.0)[0, 0] == 10.0


def test_low_values_and_lone_endpoints_stay() -> None:
    """What draws traffic is put right by traffic; without peers there is no neutral."""
    idle = np.full(3, 100.0)
    assert fade(column(0.0, 9.0, 9.0), idle, ONE_POOL, 15.0)[:, 0].tolist() == [0.0, 9.0, 9.0]
    alone = fade(column(50.0, 1.0, 1.0), idle, np.array([0, 1, 1]), 15.0)
    assert alone[0, 0] == 50.0
    assert fade(column(50.0, np.nan, np.nan), idle, ONE_POOL, 15.0)[0, 0] == 50.0


@given(
    arrays(np.float64, (4, 2), elements=st.floats(0, 1e6) | st.just(np.nan)),
    arrays(np.float64, 4, elements=st.floats(0, 1e5)),
)
def test_fading_never_leaves_the_span_between_value_and_mean(values: Any, idle: Any) -> None:
    """No value is invented: unknown stays unknown, and nothing rises or falls below its peers' mean."""
    faded = fade(values, idle, np.array([0, 0, 1, 1]), 15.0)
    assert (np.isnan(faded) == np.isnan(values)).all()
    finite = np.isfinite(values)
    assert (faded[finite] <= values[finite] + 1e-6).all()
    assert (faded[finite] >= 0).all()


def test_signals_that_return_wait() -> None:
    """After a silence longer than stale they count only once they have been there for a while."""
    times = PageTimes()
    times.remap_rows(np.array([-1, -1]))

    def step(read_at: float, now: float) -> list[bool]:
        return times.step(np.array([read_at, now]), now, 10.0, 2.0).tolist()

    assert step(100.0, 100.0) == [False, False], "a newcomer does not return"
    assert step(100.0, 105.0) == [False, False]
    assert step(111.0, 111.0) == [True, False]
    assert step(112.0, 112.5) == [True, False]
    assert step(113.0, 113.1) == [False, False]
    times.remap_rows(np.array([1, -1]))
    assert step(130.0, 130.0) == [True, False]
