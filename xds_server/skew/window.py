"""The window: the newest periods' samples over the whole fleet. Its size changes only with the endpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.sample import ROW

if TYPE_CHECKING:
    from xds_server.skew.layout import FloatArray, IntArray, Layout

PEAK_PERIODS: Final = 120.0
"""Time constant, in periods (ten minutes by default), with which the largest batch decays."""


class Window:
    """A ring of samples. Ages count in periods, 0 is the newest; missing samples are unknown."""

    def __init__(self, periods: int, layout: Layout, latency_seconds: float) -> None:
        self.layout = layout
        self.latency_seconds = latency_seconds
        """Longest time that a sample's latencies and rates cover."""
        self._ring = np.full((layout.columns, periods, len(ROW)), np.nan)
        """The columns first: an endpoint that stays keeps its samples by one copy."""
        self._newest = -1
        self._peak: FloatArray = np.zeros(layout.columns)

    @property
    def periods(self) -> int:
        """Number of samples."""
        return self._ring.shape[1]

    @property
    def recent_periods(self) -> int:
        """Samples in the newest quarter, which counts as the present."""
        return max(3, self.periods // 4)

    def push(self, sample: FloatArray) -> None:
        """Add the newest sample, shape (figures, columns), in place of the oldest."""
        self._newest = (self._newest + 1) % self.periods
        self._ring[:, self._newest] = sample.T
        self._peak = np.fmax(self._peak * np.exp(-1.0 / PEAK_PERIODS), sample[ROW["running"]])

    def skip(self, periods: int) -> None:
        """Add periods without samples."""
        for _ in range(min(periods, self.periods)):
            self.push(np.full((len(ROW), self.layout.columns), np.nan))

    def rearrange(self, layout: Layout, here: IntArray, there: IntArray) -> None:
        """Take another layout; endpoints and pools in both keep their samples, see `Layout.moved_from`."""
        ring = np.full((layout.columns, self.periods, len(ROW)), np.nan)
        ring[here] = self._ring[there]
        peak = np.zeros(layout.columns)
        peak[here] = self._peak[there]
        self.layout, self._ring, self._peak = layout, ring, peak

    def newest(self, name: str) -> FloatArray:
        """Return a figure of the newest sample, shape (columns)."""
        return self._ages(name, 0, 1).reshape(-1)

    def recent(self, name: str) -> FloatArray:
        """Return a figure over the newest quarter, shape (periods, columns), newest first."""
        return self._ages(name, 0, self.recent_periods)

    def older(self, name: str) -> FloatArray:
        """Return a figure over the older half, in the same form."""
        return self._ages(name, self.periods - self.periods // 2, self.periods)

    def whole(self, name: str) -> FloatArray:
        """Return a figure over the whole window, in the same form."""
        return self._ages(name, 0, self.periods)

    def peak(self) -> FloatArray:
        """Return the largest recent batch of each column's pool, for engines that report no limit."""
        endpoints = self.layout.endpoint_count
        if not endpoints:
            return np.zeros(0)
        highest = np.maximum.reduceat(self._peak[:endpoints], self.layout.starts)
        peak: FloatArray = highest[self.layout.pool_columns() - endpoints]
        return peak

    def _ages(self, name: str, first: int, end: int) -> FloatArray:
        at = (self._newest - np.arange(first, end)) % self.periods
        figures: FloatArray = self._ring[:, at, ROW[name]].T
        return figures


def mean_observed(block: FloatArray, least: int = 1) -> FloatArray:
    """Return the mean of the known values over periods; unknown if fewer than `least` are known."""
    observed = ~np.isnan(block)
    counts = observed.sum(axis=0)
    totals: FloatArray = np.where(observed, block, 0.0).sum(axis=0)
    mean: FloatArray = np.full_like(totals, np.nan)
    np.divide(totals, counts, out=mean, where=counts >= max(least, 1))
    return mean
