"""Arithmetic on columns, one number an endpoint, in which NaN is unknown."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def fill_unknown(column: NDArray[np.float64], default: float = 0.0) -> NDArray[np.float64]:
    """Replace each unknown number by the mean of the others; `default` throughout if all are unknown.

    A column that is equal for all endpoints decides nothing.
    """
    unknown = ~np.isfinite(column)
    if not unknown.any():
        return column
    mean = default if unknown.all() else float(column[~unknown].mean())
    return np.where(unknown, mean, column)


def lower_median(column: NDArray[np.float64]) -> float:
    """Return the lower median of the numbers that are not NaN; NaN if there are none."""
    ordered = np.sort(column[np.isfinite(column)])
    return float(ordered[(ordered.size - 1) // 2]) if ordered.size else nan
