"""Loads as columns over one pool's endpoints: the form in which strategies compute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fleet.load import Load

FloatArray = npt.NDArray[np.float64]
"""One number an endpoint, in the order of the pool."""


@dataclass(frozen=True, slots=True)
class Columns:
    """One array a signal, one row an endpoint; NaN is unknown."""

    memory_used_ratio: FloatArray
    queue_depth: FloatArray
    latency_p99_seconds: FloatArray

    @classmethod
    def of(cls, loads: Sequence[Load]) -> Columns:
        """Lay the loads out; they hold fresh signals only."""
        return cls(
            _column([load.memory_used_ratio for load in loads]),
            _column([load.queue_depth for load in loads]),
            _column([load.latency_p99_seconds for load in loads]),
        )


def fill_unknown(column: FloatArray) -> FloatArray:
    """Return the column with each unknown counted as the mean of the known.

    A column without any known value becomes 0 throughout: equal for all, so it decides nothing.
    """
    known = np.isfinite(column)
    if known.all():
        return column
    neutral = column[known].mean() if known.any() else 0.0
    return np.where(known, column, neutral)


def _column(signals: Sequence[tuple[float, float, str] | None]) -> FloatArray:
    return np.array([np.nan if held is None else held[0] for held in signals], dtype=np.float64)
