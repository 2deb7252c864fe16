"""Histograms with logarithmic bins, one an endpoint, in fixed memory: pure numpy.

A value from 1 ms to 1 h falls into a bin whose bounds are 10 % apart, and is returned as the geometric
middle of that bin: at most 4.9 % off. Smaller and larger values count as these bounds. A ring of slices
makes the window: 15 slices x 160 bins x 2 bytes = 4.8 KB an endpoint with observations. A bin holds at most
65,535 of one slice; more are not counted.
"""

from __future__ import annotations

from math import ceil, log
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from xds_server.signals.rows import FloatArray, IntArray, remapped

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
        self._places: IntArray = np.full(rows, -1)
        """Each row's place in the arrays; -1: it has had no observation."""
        self._used = 0
        """Places that a row has."""
        self._counts: npt.NDArray[np.uint16] = np.zeros((slices, 0, BINS), np.uint16)
        self._totals: npt.NDArray[np.uint32] = np.zeros((slices, 0), np.uint32)
        self.newest = _NO_SLICE
        """The number of the newest slice: time over the slice's length, rounded down."""

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self._counts.nbytes + self._totals.nbytes

    def remap_rows(self, source: IntArray) -> None:
        """Take over rows in another order: row i was row `source[i]`, or is new where that is -1."""
        self._places = remapped(self._places, source, -1)
        rows = np.flatnonzero(self._places >= 0)
        if rows.size < self._used:
            places = self._places[rows]
            self._counts, self._totals = self._counts[:, places], self._totals[:, places]
            self._places[rows] = np.arange(rows.size)
            self._used = rows.size

    def advance(self, now: float) -> bool:
        """Let slices that have left the window go; returns whether a new slice has begun."""
        return self._advance_to(int(now // self.slice_seconds))

    def add(self, rows: IntArray, values: FloatArray, now: float) -> None:
        """Count `values` (seconds) in the rows next to them."""
        self.advance(now)
        with np.errstate(divide="ignore"):
            exact = np.log(np.maximum(values, 0.0) / LOWEST_SECONDS) / log(GROWTH)
        bins = np.clip(np.ceil(exact), 0, BINS - 1).astype(np.int64)
        cells, times = np.unique(self._places_of(rows) * BINS + bins, return_counts=True)
        slot = self.newest % len(self._counts)
        flat = self._counts[slot].reshape(-1)
        before = flat[cells]
        flat[cells] = np.minimum(before + times.astype(np.int64), _MOST).astype(np.uint16)
        added = (flat[cells] - before).astype(np.int64)
        self._totals[slot] += np.bincount(
            cells // BINS, weights=added, minlength=self._totals.shape[1]
        ).astype(np.uint32)

    def quantiles(self, rows: IntArray, quantiles: Sequence[float], enough: int = ENOUGH) -> FloatArray:
        """Return one line a row and one column a quantile, in seconds; NaN without an observation.

        The newest slices count until they hold `enough`; by nearest rank.
        """
        result = np.full((len(rows), len(quantiles)), np.nan)
        observed = np.flatnonzero(self._places[rows] >= 0)
        places = self._places[rows[observed]]
        slots = (self.newest - np.arange(len(self._counts))) % len(self._counts)
        totals_of = self._totals[slots][:, places].astype(np.int64)
        # A slice counts unless those before it, the newer ones, already hold enough.
        counting = (np.cumsum(totals_of, axis=0) - totals_of < enough) & (totals_of > 0)
        counts = np.zeros((places.size, BINS), np.uint32)
        for slot, chosen in zip(slots, counting, strict=True):
            if chosen.any():
                counts[chosen] += self._counts[slot, places[chosen]]
        reached = np.cumsum(counts, axis=1)
        totals = reached[:, -1]
        for column, quantile in enumerate(quantiles):
            rank = np.maximum(1, np.ceil(quantile * totals))
            bins = (reached < rank[:, None]).sum(axis=1)
            result[observed, column] = np.where(totals > 0, _MIDDLES[np.minimum(bins, BINS - 1)], np.nan)
        return result

    def _places_of(self, rows: IntArray) -> IntArray:
        """Return the places of rows; a row without one gets one."""
        newcomers = np.unique(rows[self._places[rows] < 0])
        if newcomers.size:
            used = self._used + newcomers.size
            capacity = self._totals.shape[1]
            if used > capacity:
                more = min(max(used, 2 * capacity), len(self._places)) - capacity
                self._counts = np.pad(self._counts, ((0, 0), (0, more), (0, 0)))
                self._totals = np.pad(self._totals, ((0, 0), (0, more)))
            self._places[newcomers] = np.arange(self._used, used)
            self._used = used
        return self._places[rows]

    def _advance_to(self, number: int) -> bool:
        if number <= self.newest:
            return False
        slices = len(self._counts)
        for passed in range(max(self.newest + 1, number - slices + 1), number + 1):
            self._counts[passed % slices] = 0
            self._totals[passed % slices] = 0
        self.newest = number
        return True
