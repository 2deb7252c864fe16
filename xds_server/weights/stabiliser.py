"""What keeps weights from following noise, and lets faults through.

Two paths come together in a share. By load: the strategy's scores, with newcomers and engines that claim to
be idle no better than the mean; best over worst within the ratio cap, nobody above its multiple of the equal
share; smoothed by a time constant, and rising at most by a factor a second. By faults: a factor that falls at
once, and rises by the same slew limit. Their product, lifted to the floor, is what a pool should have now. It
is published when it has left the dead band around what was published last, twice as wide for an endpoint that
would turn back on its last change; once more when it has come to rest, so that servers agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import exp, inf, log
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from xds_server.weights.border import repair, to_shares
from xds_server.weights.bounds import bounded, grid_points, on_grid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from fleet.settings import StabiliserSettings
    from xds_server.weights.columns import BoolArray, FloatArray

REVERSAL_SECONDS: Final = 20.0
"""For so long after a change of a share its turning back needs twice the dead band."""
_REST_SECONDS: Final = 5.0
"""Shares that were nearly on target for this time have come to rest."""
_MAX_SMOOTHED_ZONE_CHANGE: Final = 0.25
"""A larger change of the silent zone's factor takes effect at once."""
_FACTOR_TOLERANCE: Final = 0.01
"""Nearer to its target than this, a factor has arrived."""
_NOISE_TIME_CONSTANTS: Final = 2.0
"""Time constants of smoothing over which noise is distinguished from a change."""
_MIN_CHANGE_TRACKING: Final = 0.6
"""From this tracking signal on, a difference is a change; below it, noise."""
_MAX_SLOWDOWN: Final = 4.0
"""Noise multiplies the time constant of smoothing by at most this."""
_MIN_NOISE: Final = 0.02
"""A smaller mean distance of the targets from the shares, relative to these, is no noise."""
_MAX_NOISE: Final = 1.0
"""A target further above the share, relative to it, is a change."""
_TINY: Final = 1e-9
"""Lower bound of divisors and of shares that rise."""
_NO_SHARES: Final = np.zeros(0)


@dataclass(frozen=True)
class StabiliserStep:
    """The arrays of one pool's last step, by endpoint."""

    settings: StabiliserSettings
    now: float
    scores: FloatArray
    """In [0, 1], before the ratio cap."""
    capped_scores: FloatArray
    """After the ratio cap."""
    targets: FloatArray
    """The shares by load that smoothing follows."""
    factors: FloatArray
    """In force."""
    target_factors: FloatArray
    """The factors in force rise to these."""
    shares: FloatArray
    """The shares that the pool should have now."""
    published: FloatArray
    """The shares when they were published last."""
    last_changes: _LastChanges
    neutral: BoolArray
    """Endpoints whose score would be better if they were not new or idle."""

    def limits(self, row: int) -> Iterator[str]:
        """Yield the steps that decide the number of one endpoint, apart from its score and its faults."""
        settings, count = self.settings, self.shares.size
        floor, highest = settings.floor_share / count, settings.most_fair_ratio / count
        if 0.0 < self.shares[row] <= floor * (1.0 + _TINY):
            yield "at the floor"
        elif self.scores[row] < self.capped_scores[row]:
            yield f"at 1/{settings.ratio_cap:g} of the best"
        elif self.targets[row] >= highest * (1.0 - _TINY) and count > 1:
            yield f"at {settings.most_fair_ratio:g} x the equal share"
        if self.factors[row] < self.target_factors[row] - _FACTOR_TOLERANCE:
            yield "recovering from a fault"
        if self._unpublished[row]:
            yield "within the dead band" if self._in_band[row] else "waiting for the next update"

    @cached_property
    def _unpublished(self) -> BoolArray:
        """Endpoints that would have another number if the current shares were published."""
        step = _grid_ratio(self.settings)
        result: BoolArray = self.shares != self.published
        if step > 0:
            result = grid_points(self.shares, step) != grid_points(self.published, step)
        return result

    @cached_property
    def _in_band(self) -> BoolArray:
        return self.last_changes.in_band(self.shares, self.published, self.now, self.settings)


class _LastChanges(NamedTuple):
    """The last published change of each share: the dead band is twice as wide against its reversal."""

    signs: FloatArray
    at: FloatArray
    struck: BoolArray
    """Endpoints whose factor has just fallen deep: the band is not wider for them."""

    def in_band(
        self, shares: FloatArray, published: FloatArray, now: float, settings: StabiliserSettings
    ) -> BoolArray:
        """Return which shares are within the dead band around those published last."""
        change = shares - published
        reversing = (np.sign(change) * self.signs < 0) & (now - self.at < REVERSAL_SECONDS)
        width = np.where(reversing & ~self.struck, 2.0, 1.0) * settings.dead_band_ratio
        result: BoolArray = np.abs(change) <= width * published
        return result


def _grid_ratio(settings: StabiliserSettings) -> float:
    return settings.dead_band_ratio / 2.0


class Stabiliser:
    """One pool's shares over time. Time comes in as an argument, in seconds on any clock."""

    def __init__(self, settings: StabiliserSettings) -> None:
        self.settings = settings
        self.shares: FloatArray = _NO_SHARES
        """What the pool should have now, in the order of the last step; published or not."""
        self._neutral: BoolArray = np.zeros(0, dtype=np.bool_)
        """Endpoints whose score would be better if they were not new or idle."""
        self._addresses: tuple[str, ...] = ()
        self._load = _NO_SHARES
        """By load alone; empty before the first step."""
        self._zone = _NO_SHARES
        """The silent zone's factors, smoothed."""
        self._factors = _NO_SHARES
        """Of faults and the zone together, in force."""
        self._struck: BoolArray = np.zeros(0, dtype=np.bool_)
        """Whose factor has just fallen deep."""
        self._scores = self._capped_scores = self._targets = self._target_factors = _NO_SHARES
        """As `StabiliserStep` has them."""
        self._neutral_until = _NO_SHARES
        self._drift = _NO_SHARES
        self._unrest = _NO_SHARES
        """How far targets were from the shares by load lately, relative; `_drift` has the sign too."""
        self._published: FloatArray | None = None
        self._turned = _NO_SHARES
        """The sign of each share's last published change."""
        self._turned_at = _NO_SHARES
        self._stepped_at = 0.0
        self._restless_at = 0.0
        self._published_at = 0.0
        self._settled = False

    def step(
        self,
        addresses: Sequence[str],
        scores: npt.ArrayLike,
        now: float,
        faults: FloatArray | None = None,
        zone: FloatArray | None = None,
        idle: BoolArray | None = None,
    ) -> FloatArray | None:
        """Take the scores of `now`; return the shares to publish, or None when nothing is worth it.

        `faults` and `zone` are factors in [0, 1], of faults and of the silent zone; `idle` marks endpoints
        that claim to hold nothing. Shares sum to 1, in the order of `addresses`. Another membership is
        published at once; changed shares not before the minimum interval has passed.
        """
        fresh = self._align(tuple(addresses), now)
        elapsed = max(0.0, now - self._stepped_at)
        self._stepped_at = now
        self._targets = self._capped(scores, idle, now)
        self._follow(elapsed, fresh=fresh)
        resting = self._take_factors(faults, zone, elapsed)
        weighed = self._load * self._factors
        floor = self.settings.floor_share / max(1, self._load.size)
        self.shares = bounded(to_shares(weighed), floor, 1.0)
        if self._left_the_band(now):
            self._settled = False
        elif not (resting and self._rests_elsewhere(now)):
            return None
        self._note_published(now)
        return on_grid(self.shares, _grid_ratio(self.settings))

    def published(self, shares: Mapping[str, float], now: float) -> None:
        """Take shares as the ones in force: they were published before this object was there."""
        count = len(shares)
        self._addresses = tuple(shares)
        self._load = to_shares(list(shares.values()))
        self._zone = self._factors = np.ones(count)
        self._neutral_until = np.full(count, -inf)
        self._drift = self._unrest = np.zeros(count)
        self.shares = self._published = self._load
        self._turned, self._turned_at = np.zeros(count), np.full(count, -inf)
        self._neutral = np.zeros(count, dtype=np.bool_)
        self._stepped_at = self._restless_at = self._published_at = now
        self._settled = False

    def last_step(self) -> StabiliserStep:
        """Return the arrays of the last step."""
        assert self._published is not None
        return StabiliserStep(
            self.settings,
            self._stepped_at,
            self._scores,
            self._capped_scores,
            self._targets,
            self._factors,
            self._target_factors,
            self.shares,
            self._published,
            _LastChanges(self._turned, self._turned_at, self._struck),
            self._neutral,
        )

    def hold(self, now: float) -> None:
        """Start the minimum interval again: weights went out for another reason than the shares."""
        self._published_at = now

    def _align(self, addresses: tuple[str, ...], now: float) -> bool:
        """Bring the state into the order of `addresses`; return whether no endpoint of before is left.

        Endpoints that left leave their share to all others. Endpoints that join start at the mean, whatever
        they report: an engine that has just started has the best numbers of all.
        """
        if addresses == self._addresses and self._load.size:
            return False
        rows = {address: row for row, address in enumerate(self._addresses)}
        index = np.array([rows.get(address, -1) for address in addresses], dtype=np.intp)
        stayed = index >= 0
        fresh = not stayed.any()
        same = self._load.size == len(addresses) and bool(stayed.all())

        def moved(before: FloatArray, newcomers: float) -> FloatArray:
            if fresh:
                return np.full(len(addresses), newcomers)
            return np.where(stayed, before[index], newcomers)

        mean = 0.0 if fresh else float(self._load[index[stayed]].mean())
        self._load = to_shares(moved(self._load, mean))
        self._zone, self._factors = moved(self._zone, 1.0), moved(self._factors, 1.0)
        self._neutral_until = moved(
            self._neutral_until, -inf if fresh else now + self.settings.neutral_seconds
        )
        self._drift, self._unrest = moved(self._drift, 0.0), moved(self._unrest, 0.0)
        self._turned, self._turned_at = moved(self._turned, 0.0), moved(self._turned_at, -inf)
        self._published = moved(self._published, 0.0) if same and self._published is not None else None
        self._addresses = addresses
        return fresh

    def _capped(self, scores: npt.ArrayLike, idle: BoolArray | None, now: float) -> FloatArray:
        """Return the shares that the scores ask for, before any smoothing."""
        repaired = repair(scores)
        count = repaired.size
        if not count:
            return repaired
        capped = self._neutral_until > now
        if idle is not None:
            capped = capped | idle
        self._neutral = capped
        if capped.any():
            others = repaired[~capped]
            if not others.any():
                # As without any score above 0.
                repaired = np.ones(count)
            else:
                mean = others.mean()
                self._neutral = capped & (repaired > mean)
                repaired = np.where(self._neutral, mean, repaired)
        self._scores = repaired
        repaired = self._capped_scores = np.maximum(repaired, repaired.max() / self.settings.ratio_cap)
        return bounded(repaired / repaired.sum(), 0.0, self.settings.most_fair_ratio / count)

    def _follow(self, elapsed: float, *, fresh: bool) -> None:
        """Move the shares by load towards the targets by 1 - exp(-dt / tau): the same for any tick.

        The less the way there is always to the same side, the longer is tau (Trigg and Leach's tracking
        signal): a step is followed at once, noise hardly. More than twice the share is no noise.
        """
        targets = self._targets
        if fresh:
            self._load, self._restless_at = targets, self._stepped_at
            return
        before = self._load
        apart = (targets - before) / np.maximum(before, _TINY)
        if np.abs(apart).max(initial=0.0) > _grid_ratio(self.settings) / 4:
            self._restless_at = self._stepped_at
        tau = _NOISE_TIME_CONSTANTS * self.settings.smoothing_seconds
        beta = 1.0 - exp(-elapsed / tau) if tau > 0 else 1.0
        self._drift = self._drift + beta * (apart - self._drift)
        self._unrest = self._unrest + beta * (np.abs(apart) - self._unrest)
        sure = np.maximum(np.abs(self._drift) / np.maximum(self._unrest, _TINY), _TINY)
        noisy = (self._unrest > _MIN_NOISE) & (apart <= _MAX_NOISE)
        slower = np.where(noisy, np.clip((_MIN_CHANGE_TRACKING / sure) ** 2, 1.0, _MAX_SLOWDOWN), 1.0)
        moved = before + self._alpha(elapsed / slower) * (targets - before)
        floor = self.settings.floor_share / max(1, before.size)
        fastest = np.maximum(np.maximum(before, floor) * self._rise(elapsed), _TINY)
        self._load = bounded(to_shares(moved), 0.0, fastest)

    def _take_factors(self, faults: FloatArray | None, zone: FloatArray | None, elapsed: float) -> bool:
        """Let factors fall at once and rise in time; return whether none is on its way.

        A small change of the silent zone's is smoothed as load is: memory is as noisy as any load.
        """
        ones = np.ones(self._load.size)
        faults, zone = ones if faults is None else faults, ones if zone is None else zone
        smoothed = self._zone + self._alpha(elapsed) * (zone - self._zone)
        great = np.abs(zone - self._zone) > _MAX_SMOOTHED_ZONE_CHANGE
        self._struck = (faults < 1.0) | (great & (zone < self._zone))
        self._zone = self._slewed(self._zone, np.where(great, zone, smoothed), elapsed)
        self._target_factors = zone * faults
        self._factors = self._slewed(self._factors, self._zone * faults, elapsed)
        return bool((np.abs(self._factors - self._target_factors) < _FACTOR_TOLERANCE).all())

    def _slewed(self, before: FloatArray, target: FloatArray, elapsed: float) -> FloatArray:
        fastest = np.maximum(before, self.settings.floor_share) * self._rise(elapsed)
        return np.minimum(target, np.maximum(fastest, _TINY))

    def _alpha(self, elapsed: npt.ArrayLike) -> FloatArray:
        tau = self.settings.smoothing_seconds
        passed = np.asarray(elapsed, dtype=np.float64)
        return 1.0 - np.exp(-passed / tau) if tau > 0 else np.ones(passed.shape)

    def _rise(self, elapsed: float) -> float:
        return exp(min(elapsed * log(self.settings.rise_ratio_per_second), 100.0))

    def _left_the_band(self, now: float) -> bool:
        last = self._published
        if last is None:
            return True
        if not self._interval_passed(now):
            return False
        changes = _LastChanges(self._turned, self._turned_at, self._struck)
        return not bool(changes.in_band(self.shares, last, now, self.settings).all())

    def _rests_elsewhere(self, now: float) -> bool:
        """Whether shares have come to rest on other points of the grid than those published; true once."""
        step = _grid_ratio(self.settings)
        if self._settled or step <= 0 or self._published is None or not self._interval_passed(now):
            return False
        if now - self._restless_at < _REST_SECONDS:
            return False
        self._settled = True
        return bool((grid_points(self.shares, step) != grid_points(self._published, step)).any())

    def _interval_passed(self, now: float) -> bool:
        return now - self._published_at >= self.settings.minimum_interval_seconds

    def _note_published(self, now: float) -> None:
        if self._published is not None:
            change = self.shares - self._published
            moved = np.abs(change) > _grid_ratio(self.settings) * self._published
            self._turned = np.where(moved, np.sign(change), self._turned)
            self._turned_at = np.where(moved, now, self._turned_at)
        self._published = self.shares
        self._published_at = now
