"""Windows over cumulative values: what happened lately, out of counters that only grow.

Unknown is None: no observation in the window is no latency, and no query is no hit ratio.
"""

from __future__ import annotations

from array import array
from collections import deque
from math import inf, isfinite
from operator import lt, sub
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

_STEPS: Final = 10
"""Snapshots kept per window: memory stays the same however often one scrapes, and a window is at most a
tenth longer than its setting."""
_FINE_STEPS: Final = 30
"""The same of histograms, whose quantiles look at the newest slices first: at 30 s, a slice is a second."""
ENOUGH_OBSERVATIONS: Final = 20
"""A quantile is that of this many of the newest observations; older ones of the window are left out. Fewer
make it jump, more make an engine that was slow and is not any more pay for it longer."""
ENOUGH_FOR_MEDIAN: Final = 5
"""The same of quantiles up to a half, which rest on the middle of them and not on the last: an engine that
gets little, because it was slow, shows sooner that it is fast again."""


class _Snapshot(NamedTuple):
    at: float
    values: array[float]


class Growth(NamedTuple):
    """How much cumulative values grew, and in how many seconds."""

    deltas: list[float]
    seconds: float


class CounterWindow:
    """Deltas of a vector of cumulative values over the last `window_seconds`.

    The window starts again, and the answer is unknown until the next observation, when a value falls (the
    engine has restarted), when `shape` differs (bucket bounds, series or process are others, so sums are
    not comparable) and when nothing was observed for a whole window. What happened between a restart and
    the first observation after it is lost: at most one scrape interval.
    """

    def __init__(self, window_seconds: float, steps: int = _STEPS) -> None:
        self._window = window_seconds
        self._slice = window_seconds / steps
        self._shape: Hashable = None
        self._baselines: deque[_Snapshot] = deque()
        self._latest: _Snapshot | None = None

    def observe(self, values: Sequence[float], now: float, shape: Hashable = None) -> None:
        """Take the cumulative values of `now` (seconds); a vector with a non-finite value is skipped."""
        if not all(map(isfinite, values)):
            return
        snapshot = _Snapshot(now, array("d", values))
        latest = self._latest
        if latest is None or self._broken(latest, snapshot, shape):
            self._baselines.clear()
        self._shape = shape
        self._latest = snapshot
        if not self._baselines or now - self._baselines[-1].at >= self._slice:
            self._baselines.append(snapshot)
        # The newest snapshot that is a window old is the baseline; older ones are of no more use.
        while len(self._baselines) > 1 and self._baselines[1].at <= now - self._window:
            self._baselines.popleft()

    def _broken(self, latest: _Snapshot, snapshot: _Snapshot, shape: Hashable) -> bool:
        return (
            shape != self._shape
            or len(latest.values) != len(snapshot.values)
            or snapshot.at - latest.at > self._window
            or any(map(lt, snapshot.values, latest.values))
        )

    def growth(self, now: float, enough: float = inf) -> Growth | None:
        """Growth of each value, and over how long; None when the newest observation is a window old.

        Of the window's slices those are taken from the newest backwards in which the last value has grown
        by `enough`; all of them when it has not.
        """
        latest = self._latest
        if latest is None or now - latest.at > self._window:
            return None
        chosen = None
        for baseline in reversed(self._baselines) if enough < inf else (self._baselines[0],):
            if baseline is latest:
                continue
            chosen = baseline
            if latest.values[-1] - baseline.values[-1] >= enough:
                break
        if chosen is None:
            return None
        return Growth(list(map(sub, latest.values, chosen.values)), latest.at - chosen.at)


class HistogramWindow:
    """What a cumulative histogram has counted over the last `window_seconds`."""

    def __init__(self, window_seconds: float) -> None:
        self._window = CounterWindow(window_seconds, _FINE_STEPS)
        self._bounds: tuple[float, ...] = ()

    def observe(
        self, bounds: tuple[float, ...], counts: Sequence[float], now: float, series: Hashable = None
    ) -> None:
        """Take the cumulative counts up to ascending bounds (`le`); `series` identifies what was summed."""
        self._bounds = bounds
        self._window.observe(counts, now, (bounds, series))

    def quantile(self, q: float, now: float) -> float | None:
        """Quantile `q` (0 to 1) of the newest observations in the window; None without any.

        The newest slices of the window that hold `ENOUGH_OBSERVATIONS` (`ENOUGH_FOR_MEDIAN`), or all of it:
        under load the answer is a second or two old, and what an engine did before counts only while little
        else is known.
        """
        growth = self._window.growth(now, ENOUGH_OBSERVATIONS if q > 0.5 else ENOUGH_FOR_MEDIAN)
        return None if growth is None else bucket_quantile(q, self._bounds, growth.deltas)

    def variance(self, now: float) -> float | None:
        """Variance of all observations in the window, by `bucket_variance`; None without any."""
        growth = self._window.growth(now)
        return None if growth is None else bucket_variance(self._bounds, growth.deltas)


def bucket_quantile(q: float, bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Estimate a quantile from cumulative bucket counts by Prometheus' rule.

    Linear interpolation within the bucket, the first one starting at 0 (or being answered by its bound when
    that is not positive); the +Inf bucket answers the highest finite bound. Source: histogram_quantile in
    https://prometheus.io/docs/prometheus/latest/querying/functions/.

    Args:
        q: from 0 to 1.
        bounds: ascending upper bounds; the last must be +Inf and at least one must be finite.
        counts: cumulative counts, one a bound.

    Returns:
        The estimate, or None when nothing was counted or the bounds do not allow one.
    """
    if len(bounds) < 2 or bounds[-1] != inf or counts[-1] <= 0:
        return None
    rank = q * counts[-1]
    below = 0.0
    for i, bound in enumerate(bounds[:-1]):
        upto = max(counts[i], below)  # sums of several series may be a rounding error apart
        if upto >= rank and upto > below:
            start = bounds[i - 1] if i else min(bound, 0.0)
            return start + (bound - start) * (rank - below) / (upto - below)
        below = upto
    return bounds[-2]


def bucket_variance(bounds: Sequence[float], counts: Sequence[float]) -> float | None:
    """Estimate the variance from cumulative bucket counts: every observation counts as its bucket's middle.

    The first bucket starts at 0 (or is a point, when its bound is not positive); the +Inf bucket counts as
    the highest finite bound. What differs within a bucket is not seen. Arguments and None as with
    `bucket_quantile`.
    """
    if len(bounds) < 2 or bounds[-1] != inf or counts[-1] <= 0:
        return None
    start, below = min(bounds[0], 0.0), 0.0
    total = weighted = squares = 0.0
    for bound, count in zip(bounds, counts, strict=True):
        upto = max(count, below)
        middle = start if bound == inf else (start + bound) / 2
        total += upto - below
        weighted += (upto - below) * middle
        squares += (upto - below) * middle * middle
        start, below = bound, upto
    mean = weighted / total
    return max(squares / total - mean * mean, 0.0)
