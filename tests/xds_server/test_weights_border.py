"""The border to integers: whatever comes in, Envoy takes what goes out."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds_server.weights.border import MAX_WEIGHT, MEAN_WEIGHT, MIN_WEIGHT, to_shares, to_weights

ENVOY_MAX_SUM = 2**32 - 1

anything = st.lists(st.floats(width=64), max_size=60)


@given(anything)
def test_any_floats_become_integers_in_range(scores: list[float]) -> None:
    weights = to_weights(scores)
    assert weights.dtype == np.int64
    assert len(weights) == len(scores)
    assert all(MIN_WEIGHT <= weight <= MAX_WEIGHT for weight in weights.tolist())
    assert weights.tolist() == to_weights(scores).tolist()


@given(anything)
def test_any_floats_become_shares_that_sum_to_one(scores: list[float]) -> None:
    shares = to_shares(scores)
    assert np.isfinite(shares).all()
    assert (shares >= 0).all()
    assert not scores or shares.sum() == pytest.approx(1.0)


@given(st.lists(st.floats(0, 1e308), min_size=1, max_size=60))
def test_order_is_kept(scores: list[float]) -> None:
    weights = to_weights(scores)
    assert (np.diff(weights[np.argsort(scores, kind="stable")]) >= 0).all()


@pytest.mark.parametrize("bad", [nan, inf, -inf, -3.0, None])
def test_one_bad_score_among_fifty_concerns_one_endpoint(bad: Any) -> None:
    good = [1.0 + i / 50 for i in range(50)]
    weights = to_weights([*good, bad]).tolist()
    assert weights[:50] == to_weights(good).tolist()
    assert weights[50] == MEAN_WEIGHT


@pytest.mark.parametrize(
    "scores", [[0.0] * 3, [nan] * 3, [inf, nan, -1.0], [5e-324] * 3, [1.7e308] * 3, [5e9] * 3]
)
def test_scores_that_say_nothing_are_equal_weights(scores: list[float]) -> None:
    assert to_weights(scores).tolist() == [MEAN_WEIGHT] * 3


def test_weights_are_in_proportion_with_the_mean_where_it_fits() -> None:
    assert to_weights([0.5, 0.3, 0.2]).tolist() == [1500, 900, 600]
    assert to_weights([0.0, 1e-9, 1.0, 1.0]).tolist() == [1, 1, 2000, 2000]


def test_beyond_the_cap_all_are_scaled_down_together() -> None:
    weights = to_weights([100.0] + [1.0] * 99)
    assert weights[0] == MAX_WEIGHT
    assert set(weights[1:].tolist()) == {100}


def test_largest_pool_stays_below_envoys_sum() -> None:
    assert 5000 * MAX_WEIGHT <= ENVOY_MAX_SUM
    assert to_weights(np.full(5000, 1e300)).sum() <= ENVOY_MAX_SUM
    assert to_weights(np.full(5000, 1e-9)).min() == MEAN_WEIGHT  # no division makes them 0
