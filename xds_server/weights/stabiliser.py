"""What keeps weights from following noise: smoothing, dead band, minimum interval, floor share."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

import numpy as np

from xds_server.weights.border import to_shares

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fleet.settings import StabiliserSettings
    from xds_server.weights.columns import FloatArray


class Stabiliser:
    """One pool's shares over time. Time comes in as an argument, in seconds on any clock."""

    def __init__(self, settings: StabiliserSettings) -> None:
        self.settings = settings
        self._smoothed: dict[str, float] = {}
        self._stepped_at = 0.0
        self._published: dict[str, float] | None = None
        self._published_at = 0.0

    def step(self, addresses: Sequence[str], scores: npt.ArrayLike, now: float) -> FloatArray | None:
        """Take the scores of `now`; return the shares to publish, or None when nothing is worth it.

        Shares sum to 1 and stand in the order of `addresses`. Another membership is published at once; a
        changed share only when it moved by more than the dead band, relative to the one published last, and
        the minimum interval has passed.
        """
        shares = self._floored(self._smooth(addresses, scores, now))
        if not self._worth_publishing(addresses, shares, now):
            return None
        self._published = dict(zip(addresses, shares.tolist(), strict=True))
        self._published_at = now
        return shares

    def published(self, shares: Mapping[str, float], now: float) -> None:
        """Take shares as the ones in force: they were published before this object was there."""
        self._smoothed = dict(shares)
        self._stepped_at = now
        self._published = dict(shares)
        self._published_at = now

    def hold(self, now: float) -> None:
        """Begin the minimum interval anew: weights went out for a reason beside the shares."""
        self._published_at = now

    def _smooth(self, addresses: Sequence[str], scores: npt.ArrayLike, now: float) -> FloatArray:
        """Move the shares towards the scores by 1 - exp(-dt / tau): the same for any tick."""
        before = np.array([self._smoothed.get(address, np.nan) for address in addresses], dtype=np.float64)
        stayed = ~np.isnan(before)
        smoothed = to_shares(scores)
        if stayed.any():
            elapsed = max(0.0, now - self._stepped_at)
            tau = self.settings.smoothing_seconds
            alpha = 1.0 - exp(-elapsed / tau) if tau > 0 else 1.0
            # Among those who stayed; those who left leave their share to all of them.
            held = to_shares(before[stayed])
            held = held + alpha * (to_shares(np.asarray(scores, dtype=np.float64)[stayed]) - held)
            # Those who join start at the mean of the others, whatever they report: an engine that has just
            # come up has the best numbers of all.
            smoothed = np.full(before.shape, held.mean())
            smoothed[stayed] = held
            smoothed = to_shares(smoothed)
        self._smoothed = dict(zip(addresses, smoothed.tolist(), strict=True))
        self._stepped_at = now
        return smoothed

    def _floored(self, shares: FloatArray) -> FloatArray:
        """Lift shares to the floor at the cost of those above it; the proportions of those stay."""
        if not shares.size:
            return shares
        floor = self.settings.floor_share / shares.size
        low = np.zeros(shares.shape, dtype=np.bool_)
        result = shares
        # Paying for the floor may push another one below it, so this goes on until nobody is.
        while (below := ~low & (result < floor)).any():
            low |= below
            left = shares[~low].sum()
            if low.all() or left <= 0:
                return np.full(shares.shape, 1.0 / shares.size)
            result = np.where(low, floor, shares * ((1.0 - floor * low.sum()) / left))
        return result

    def _worth_publishing(self, addresses: Sequence[str], shares: FloatArray, now: float) -> bool:
        published = self._published
        if published is None or published.keys() != set(addresses):
            return True
        if now - self._published_at < self.settings.minimum_interval_seconds:
            return False
        last = np.array([published[address] for address in addresses], dtype=np.float64)
        return bool((np.abs(shares - last) > self.settings.dead_band_ratio * last).any())
