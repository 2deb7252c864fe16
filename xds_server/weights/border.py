"""The border between scores, which may be anything, and the integers that EDS carries.

Nearness rounds once more, for a group of Envoys: `topology.nearer_weighs_more`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from xds_server.weights.columns import FloatArray

MIN_WEIGHT: Final = 1
"""Envoy refuses a whole assignment for one weight of 0; no traffic is a health status, not a weight."""
MAX_WEIGHT: Final = 10_000
"""Keeps the sum of 100,000 endpoints (the largest `limits.endpoints`) below Envoy's limit of 2^32 - 1."""
MEAN_WEIGHT: Final = 1000
"""So that a slow start's 10 % of a small weight is still a whole number."""


def repair(scores: npt.ArrayLike) -> FloatArray:
    """Return scores in [0, 1], in proportion: what is no score counts as the mean of the others.

    NaN, infinite and negative numbers are no scores; without any score all are equal. The result is scaled
    so that the highest is 1, hence sums of it cannot overflow.
    """
    numbers = np.asarray(scores, dtype=np.float64)
    good = np.isfinite(numbers) & (numbers >= 0)
    highest = numbers[good].max(initial=0.0)
    if highest <= 0:
        return np.ones_like(numbers)
    scaled = np.divide(numbers, highest, out=np.zeros_like(numbers), where=good)
    repaired: FloatArray = np.where(good, scaled, scaled[good].mean())
    return repaired


def to_shares(scores: npt.ArrayLike) -> FloatArray:
    """Return repaired scores as shares that sum to 1; empty for no endpoint."""
    repaired = repair(scores)
    return repaired / repaired.sum() if repaired.size else repaired


def to_weights(shares: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Make integers in [1, 10000] in proportion to the shares, whatever floats these are.

    The mean weight is 1000 as long as the highest fits below 10000; beyond that all are scaled down together.
    What is no share (NaN, infinite, negative) gets the mean of the others. Equal input, equal output.
    """
    repaired = repair(shares)
    if not repaired.size:
        return np.zeros(0, dtype=np.int64)
    scale = min(MEAN_WEIGHT / repaired.mean(), float(MAX_WEIGHT))  # the highest of `repaired` is 1
    weights: npt.NDArray[np.int64] = np.clip(np.rint(repaired * scale), MIN_WEIGHT, MAX_WEIGHT).astype(
        np.int64
    )
    return weights
