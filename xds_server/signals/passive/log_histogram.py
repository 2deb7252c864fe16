"""Histograms with logarithmic bins, one an endpoint, in fixed memory: pure numpy.

A value from 1 ms to 1 h falls into a bin whose bounds are 10 % apart, and is returned as the geometric
middle of that bin: at most 4.9 % off. Smaller and larger values count as these bounds. A ring of slices
makes the window: 15 slices x 160 bins x 2 bytes = 4.8 KB an endpoint. A bin holds at most 65,535 of one
slice; more are not counted.
"""

from __future__ import annotations

from math import ceil, log
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from xds_server.signals.rows import FloatArray, IntArray, relaid

if TYPE_CHECKING:
    from collections.abc import Sequence

LOWEST_SECONDS: Final = 0.001
HIGHEST_SECONDS: Final = 3600.0
GROWTH: Final = 1.1
"""Of a bin's upper bound against its lower one."""
RELATIVE_ERROR: Final = GROWTH**0.5 - 1
BINS: Final = ceil(log(HIGHEST_SECONDS / LOWEST_SECONDS) / log(GROWTH)) + 1
SLICES: Final = 15
ENOUGH: Final = 20
"""Observations that a quantile wants: older slices count only while the newer ones hold fewer, so that an
endpoint which was slow is seen to be fast again within seconds, and a quiet one still has a figure."""

_MOST: Final = int(np.iinfo(np.uint16).max)
_MIDDLES: Final[FloatArray] = np.clip(
    LOWEST_SECONDS * GROWTH ** (np.arange(BINS) - 0.5), LOWEST_SECONDS, HIGHEST_SECONDS
)
_NO_SLICE: Final = -(1 << 62)


class FleetHistogram:
    """One histogram a row. `now` is in seconds on one clock, and never earlier than before."""

    def __init__(self, rows: int, window_seconds: float, slices: int = SLICES) -> None:
        self.slice_seconds = window_seconds / slices
        self._counts: npt.NDArray[np.uint16] = np.zeros((slices, rows, BINS), np.uint16)
        self._totals: npt.NDArray[np.uint32] = np.zeros((slices, rows), np.uint32)
        self.newest = _NO_SLICE
        """The number of the newest slice: time over the slice's length, rounded down."""

    @property
    def nbytes(self) -> int:
        """Memory held."""
        return self._counts.nbytes + self._totals.nbytes

    def relay(self, source: IntArray) -> None:
        """Take over rows in another order: row i was row `source[i]`, or is new where that is -1."""
        self._counts = np.stack([relaid(counts, source, 0) for counts in self._counts])
        self._totals = np.stack([relaid(totals, source, 0) for totals in self._totals])

    def advance(self, now: float) -> bool:
        """Let slices that have left the window go; returns whether a new slice has begun."""
        return self._advance_to(int(now // self.slice_seconds))

    def add(self, rows: IntArray, values: FloatArray, now: float) -> None:
        """Count `values` (seconds) in the rows next to them."""
        self.advance(now)
        with np.errstate(divide="ignore"):
            exact = np.log(np.maximum(values, 0.0) / LOWEST_SECONDS) / log(GROWTH)
        bins = np.clip(np.ceil(exact), 0, BINS - 1).astype(np.int64)
        places, times = np.unique(rows * BINS + bins, return_counts=True)
        slot = self.newest % len(self._counts)
        flat = self._counts[slot].reshape(-1)
        before = flat[places]
        flat[places] = np.minimum(before + times.astype(np.int64), _MOST).astype(np.uint16)
        added = (flat[places] - before).astype(np.int64)
        self._totals[slot] += np.bincount(
            places // BINS, weights=added, minlength=self._totals.shape[1]
        ).astype(np.uint32)

    def quantiles(self, rows: IntArray, quantiles: Sequence[float], enough: int = ENOUGH) -> FloatArray:
        """Return one line a row and one column a quantile, in seconds; NaN without an observation.

        The newest slices count until they hold `enough`; by nearest rank.
        """
        slots = (self.newest - np.arange(len(self._counts))) % len(self._counts)
        totals_of = self._totals[slots][:, rows].astype(np.int64)
        # A slice counts unless those before it, the newer ones, already hold enough.
        counting = (np.cumsum(totals_of, axis=0) - totals_of < enough) & (totals_of > 0)
        counts = np.zeros((len(rows), BINS), np.uint32)
        for slot, chosen in zip(slots, counting, strict=True):
            if chosen.any():
                counts[chosen] += self._counts[slot, rows[chosen]]
        reached = np.cumsum(counts, axis=1)
        totals = reached[:, -1]
        result = np.full((len(rows), len(quantiles)), np.nan)
        for column, quantile in enumerate(quantiles):
            rank = np.maximum(1, np.ceil(quantile * totals))
            places = (reached < rank[:, None]).sum(axis=1)
            result[:, column] = np.where(totals > 0, _MIDDLES[np.minimum(places, BINS - 1)], np.nan)
        return result

    def _advance_to(self, number: int) -> bool:
        if number <= self.newest:
            return False
        slices = len(self._counts)
        for passed in range(max(self.newest + 1, number - slices + 1), number + 1):
            self._counts[passed % slices] = 0
            self._totals[passed % slices] = 0
        self.newest = number
        return True
