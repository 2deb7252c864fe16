"""Shares within bounds, and on a grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xds_server.weights.border import to_shares, to_weights
from xds_server.weights.bounds import bounded, on_grid

positive = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=40)


@settings(deadline=None)
@given(positive, st.floats(0, 1), st.floats(1, 10))
def test_shares_sum_to_one_within_their_bounds(scores: list[float], floor: float, most: float) -> None:
    count = len(scores)
    result = bounded(to_shares(scores), floor / count, most / count)
    assert result.sum() == pytest.approx(1.0)
    assert result.min() >= floor / count - 1e-9
    assert result.max() <= most / count + 1e-9


@settings(deadline=None)
@given(positive, st.floats(0, 1), st.floats(1, 10))
def test_order_stays_and_free_shares_keep_proportions(scores: list[float], floor: float, most: float) -> None:
    count = len(scores)
    shares = to_shares(scores)
    result = bounded(shares, floor / count, most / count)
    assert (np.diff(result[np.argsort(shares, kind="stable")]) >= -1e-12).all()
    free = (result > floor / count + 1e-9) & (result < most / count - 1e-9)
    if free.any():
        ratios = result[free] / shares[free]
        assert ratios == pytest.approx(np.full(ratios.shape, ratios[0]), rel=1e-6)


def test_bounds_may_differ_by_endpoint() -> None:
    result = bounded(np.array([0.7, 0.2, 0.1]), 0.0, np.array([0.4, 1.0, 1.0]))
    assert result.tolist() == pytest.approx([0.4, 0.4, 0.2])


def test_nearly_equal_shares_stand_on_the_same_points() -> None:
    """Two servers that read their engines at other moments come to the same weights."""
    shares = np.array([0.4, 0.35, 0.25])
    noise = np.array([1.004, 0.997, 1.001])
    one, other = to_weights(on_grid(shares, 0.05)), to_weights(on_grid(to_shares(shares * noise), 0.05))
    assert one.tolist() == other.tolist()
    assert one / one.sum() == pytest.approx(shares, rel=0.05)
    assert on_grid(np.full(3, 1 / 3), 0.05).tolist() == pytest.approx([1 / 3] * 3)
    assert on_grid(shares, 0.0).tolist() == shares.tolist()
