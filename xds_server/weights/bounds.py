"""Shares within bounds, and shares on a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.weights.border import to_shares

if TYPE_CHECKING:
    from xds_server.weights.columns import FloatArray

_LEAST: Final = 1e-6
"""Of the equal share: less than the smallest weight can say."""


def bounded(shares: FloatArray, low: FloatArray | float, high: FloatArray | float) -> FloatArray:
    """Return shares that sum to 1 with each in its bounds; those that touch none keep their proportions.

    `low` may sum to at most 1 and `high` to at least 1. The result is clip(k x shares, low, high) for the k
    at which the sum is 1. In each round those are fixed whose bound moves the sum further, as CSS lays out
    flexible boxes, so it ends after at most as many rounds as there are endpoints, in general after two.
    """
    if ((shares >= low) & (shares <= high)).all():
        return shares
    lowest = np.broadcast_to(np.asarray(low, dtype=np.float64), shares.shape)
    highest = np.broadcast_to(np.asarray(high, dtype=np.float64), shares.shape)
    result = shares.copy()
    free = np.ones(shares.shape, dtype=np.bool_)
    while free.any():
        rest = 1.0 - result[~free].sum()
        mass = shares[free].sum()
        scaled = shares * (rest / mass) if mass > 0 else np.full(shares.shape, rest / free.sum())
        clipped = np.clip(scaled, lowest, highest)
        moved = np.where(free, clipped - scaled, 0.0)
        result = np.where(free, clipped, result)
        surplus = moved.sum()
        fixed = (moved > 0) if surplus > 0 else (moved < 0)
        if abs(surplus) <= 1e-12 or not fixed.any():
            break
        free &= ~fixed
    return result


def on_grid(shares: FloatArray, step_ratio: float) -> FloatArray:
    """Round each share, relative to the equal share, to whole powers of 1 + `step_ratio`; they sum to 1.

    Servers that share nothing come to nearly the same shares, and so to the same grid points and versions.
    """
    if step_ratio <= 0 or not shares.size:
        return shares
    step = np.log1p(step_ratio)
    points = np.exp(grid_points(shares, step_ratio) * step)
    return to_shares(points)


def grid_points(shares: FloatArray, step_ratio: float) -> FloatArray:
    """Return which point of the grid is next to each share; 0 is the equal share."""
    relative = np.maximum(shares * shares.size, _LEAST)
    points: FloatArray = np.rint(np.log(relative) / np.log1p(step_ratio))
    return points
