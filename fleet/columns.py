"""Arithmetic on columns, one number an endpoint, in which NaN is unknown: the same for weights and picks."""

from __future__ import annotations

from math import nan
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet.settings.weights import Memory

MOST_PREFILL_SECONDS: Final = 60.0
"""That a worker may add to an endpoint between two reports; more counts as this."""


def fill_unknown(column: NDArray[np.float64], default: float = 0.0) -> NDArray[np.float64]:
    """Replace each unknown number by the mean of the others; `default` throughout if all are unknown.

    A column that is equal for all endpoints decides nothing.
    """
    unknown = ~np.isfinite(column)
    if not unknown.any():
        return column
    mean = default if unknown.all() else float(column[~unknown].mean())
    return np.where(unknown, mean, column)


def unknown_as_zero(column: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a column with 0 for NaN: a quarter of the time of `np.nan_to_num` for few endpoints."""
    return np.where(np.isnan(column), 0.0, column)


def lower_median(column: NDArray[np.float64]) -> float:
    """Return the lower median of the numbers that are not NaN; NaN if there are none."""
    ordered = np.sort(column[np.isfinite(column)])
    return float(ordered[(ordered.size - 1) // 2]) if ordered.size else nan


def memory_that_counts(
    chosen: Memory, kv: NDArray[np.float64], gpu: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the share in use of the KV cache, of the GPU's memory (`gpu`), or the higher one (`highest`).

    NaN is unknown. Engines reserve most of a GPU's memory at their start, so it does not replace an unknown
    share of the KV cache.
    """
    if chosen == "gpu":
        return gpu
    return np.fmax(kv, gpu) if chosen == "highest" else kv
