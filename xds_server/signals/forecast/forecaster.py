"""Forecasts of each endpoint's load signals for a moment shortly ahead, by what serves the endpoint best.

Two models of the last 8 s learn online from all endpoints: a linear one and a small convolution network.
Their parameters are shared by the fleet. Each endpoint has its own scale: they see signals as distances from
the endpoint's usual value in units of its usual distance, and forecast the change until the horizon in these
units. So an unknown sample counts as the usual value, and a model without training forecasts no change.

For each endpoint, signal and quantile, the forecast is the last value, the linear model's or the network's:
the one with the lowest loss lately. Another one takes over only if it is better by a margin.

Equal inputs at equal times give equal forecasts. Time and memory are bounded, whatever the fleet's size: a
sample teaches from a fixed number of windows.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import exp, inf
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.signals import SignalTable, Source, rows_of
from xds_server.signals.forecast.history import History
from xds_server.signals.forecast.linear import Linear
from xds_server.signals.forecast.quantiles import QUANTILES, pinball, slope
from xds_server.signals.forecast.tcn import Tcn
from xds_server.signals.rows import Rows, rows_before

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fleet.settings import Settings
    from xds_server.signals.forecast.quantiles import Array
    from xds_server.signals.rows import IntArray

SAMPLE_SECONDS: Final = 0.5
WINDOW: Final = 16
"""Samples of a window."""
TARGETS: Final = ("queue_depth", "running", "memory_used_ratio")
"""Signals to forecast; the models see the same ones."""
MODELS: Final = ("last value", "linear", "network")
"""In the order of choices and losses."""
_LEAST_SCALE: Final[Array] = np.array((1.0, 1.0, 0.02), np.float32)
"""By target: a request, and as much memory as a request takes. Smaller distances are rounding."""
_MOST: Final = 1e6
"""A page may have any number; sums and products must not overflow."""
_FAR: Final = 8.0
"""Distances beyond this many units count as this many."""
_USUAL: Final = exp(-SAMPLE_SECONDS / 60.0)
"""Of the usual value and the usual distance, the part that stays at a sample."""
_LATELY: Final = exp(-SAMPLE_SECONDS / 60.0)
"""The same of the losses."""
_MARGIN: Final = 0.03
"""Another model takes over if its loss is lower by this share."""
_BATCH: Final = 256
_BATCHES: Final = 2
"""Windows of a batch and batches of a sample."""
_SEED: Final = 1
_EARLY_SECONDS: Final = 0.01
"""A tick that is this early takes the sample: it is not put off by a whole tick."""
_TARGET_ROWS: Final = rows_of(TARGETS)
_P50_ROWS: Final = rows_of(f"{name}_forecast_p50" for name in TARGETS)
_P90_ROWS: Final = rows_of(f"{name}_forecast_p90" for name in TARGETS)
_OUTPUTS: Final = len(TARGETS) * len(QUANTILES)


def forecast_horizon(settings: Settings) -> float:
    """Return the seconds of forecasts; 0 if neither weights nor admission use them."""
    used = settings.weights.strategy == "predictive" or settings.ext_proc.pick.admission.enabled
    return settings.weights.forecast.horizon_seconds if used else 0.0


class SignalForecaster(Rows):
    """Takes the fleet's signals at every tick and adds their forecasts. `now` never goes back."""

    _usual: Array = np.full((1, len(TARGETS)), np.nan, np.float32)
    _distance: Array = np.zeros((1, len(TARGETS)), np.float32)
    losses: Array = np.zeros((1, len(TARGETS), len(MODELS), len(QUANTILES)), np.float32)
    """Mean pinball loss lately, in units of the usual distance: endpoints x targets x models x quantiles."""
    choice: NDArray[np.int8] = np.zeros((1, len(TARGETS), len(QUANTILES)), np.int8)
    """The model that forecasts: endpoints x targets x quantiles."""
    forecasts: Array = np.full((1, len(TARGETS), len(MODELS), len(QUANTILES)), np.nan, np.float32)
    """Every model's newest, of the same shape; NaN where the signal is unknown."""
    _observed_at: NDArray[np.float64] = np.full((1, len(TARGETS)), np.nan)
    """When the signals behind the forecasts were observed."""

    def __init__(self, horizon_seconds: float, stale_after_seconds: float) -> None:
        """Forecast for `horizon_seconds` ahead; older signals than `stale_after_seconds` are unknown."""
        super().__init__()
        self.horizon_seconds = horizon_seconds
        self._stale_after = stale_after_seconds
        self._ahead = max(1, round(horizon_seconds / SAMPLE_SECONDS))
        self._addresses: tuple[str, ...] = ()
        self._history = History(len(TARGETS), WINDOW + 2 * self._ahead)
        self._linear = Linear(WINDOW, len(TARGETS), _OUTPUTS)
        self._network = Tcn(WINDOW, len(TARGETS), _OUTPUTS, _SEED)
        self._draw = np.random.default_rng(_SEED)
        self._earlier: deque[Array] = deque(maxlen=self._ahead)
        """Forecasts of the last samples, whose moments have not come."""
        self._sampled_at = -inf

    def add_to(self, signals: SignalTable, now: float) -> SignalTable:
        """Return the signals of `now` with forecasts."""
        if signals.addresses != self._addresses:
            self._follow(signals.addresses)
        if signals.addresses and now >= self._sampled_at + SAMPLE_SECONDS - _EARLY_SECONDS:
            self._sample(signals, now)
        forecasts = np.take_along_axis(self.forecasts, self.choice[:, :, None], axis=2)[:, :, 0]
        values, at, sources = signals.values.copy(), signals.observed_at.copy(), signals.sources.copy()
        values[_P50_ROWS] = forecasts[..., 0].T
        values[_P90_ROWS] = forecasts.max(axis=2).T
        for rows in (_P50_ROWS, _P90_ROWS):
            at[rows] = self._observed_at.T
            sources[rows] = np.where(np.isnan(values[rows]), Source.NONE, Source.FORECAST)
        return SignalTable(signals.addresses, values, at, sources)

    def _follow(self, addresses: tuple[str, ...]) -> None:
        source = rows_before(addresses, {address: row for row, address in enumerate(self._addresses)})
        self.remap_rows(source)
        self._history.remap_rows(source)
        self._earlier.clear()
        self._addresses = addresses

    def _sample(self, signals: SignalTable, now: float) -> None:
        """Take a sample: judge earlier forecasts by it, learn, and forecast."""
        at = signals.observed_at[_TARGET_ROWS].T
        fresh = at >= now - self._stale_after
        self._observed_at = np.where(fresh, at, np.nan)
        values = np.where(fresh, np.minimum(signals.values[_TARGET_ROWS].T, _MOST), np.nan)
        sample: Array = values.astype(np.float32)
        if self._history.count:
            # Between ticks that are further apart, nothing changed.
            missed = round(min((now - self._sampled_at) / SAMPLE_SECONDS, WINDOW)) - 1
            for _ in range(missed):
                self._history.add(self._history.at(np.zeros(1, np.int64), slice(None))[0])
                self._earlier.append(self.forecasts)
        self._sampled_at = now
        self._history.add(sample)
        scale = self._scale(sample)
        if len(self._earlier) == self._ahead:
            self._judge(self._earlier[0], sample, scale)
        if self._history.count > WINDOW + self._ahead:
            for _ in range(_BATCHES):
                self._learn(scale)
        self._forecast(sample, scale)

    def _scale(self, sample: Array) -> Array:
        """Take a sample into the usual values; return the unit of distance by endpoint and target."""
        self._usual = np.where(np.isnan(self._usual), sample, self._usual)
        away = np.nan_to_num(sample - self._usual)
        self._usual = self._usual + (1.0 - _USUAL) * away
        self._distance = self._distance + (1.0 - _USUAL) * (np.abs(away) - self._distance)
        return np.maximum(self._distance, _LEAST_SCALE)

    def _judge(self, earlier: Array, sample: Array, scale: Array) -> None:
        """Compare what was forecast for now with what is, and choose by it."""
        errors = (sample[..., None, None] - earlier) / scale[..., None, None]
        loss = pinball(np.clip(errors, -_FAR, _FAR))
        lately = self.losses + (1.0 - _LATELY) * (loss - self.losses)
        self.losses = np.where(np.isnan(loss), self.losses, lately)
        shrunk = self.losses + self.losses.mean(axis=0)
        current = np.take_along_axis(shrunk, self.choice[:, :, None], axis=2)[:, :, 0]
        better = shrunk.min(axis=2) < (1.0 - _MARGIN) * current
        self.choice = np.where(better, shrunk.argmin(axis=2).astype(np.int8), self.choice)

    def _learn(self, scale: Array) -> None:
        """Let both models learn from windows of any endpoints and times, and what came after them."""
        rows = self._draw.integers(0, len(self._addresses), _BATCH)
        ages = self._draw.integers(self._ahead, self._history.count - WINDOW + 1, _BATCH)
        windows = self._history.at(ages + _AGES[:, None], rows)
        change = (self._history.at(ages - self._ahead, rows) - windows[-1]) / scale[rows]
        toward = np.clip(change, -_FAR, _FAR)[..., None]
        slopes = partial(_slopes, toward)
        distances = _distances(windows, self._usual[rows], scale[rows])
        self._linear.learn(distances, slopes)
        self._network.learn(distances, slopes)

    def _forecast(self, sample: Array, scale: Array) -> None:
        windows = _distances(self._history.at(_AGES, slice(None)), self._usual, scale)
        shape = len(sample), len(TARGETS), len(QUANTILES)
        changes = np.zeros(self.forecasts.shape, np.float32)
        changes[:, :, 1] = self._linear(windows).reshape(shape)
        changes[:, :, 2] = self._network(windows).reshape(shape)
        ahead = np.maximum(sample[..., None, None] + changes * scale[..., None, None], 0.0)
        ahead[:, 2] = np.minimum(ahead[:, 2], 1.0)
        self.forecasts = ahead
        self._earlier.append(ahead)


_AGES: Final[IntArray] = np.arange(WINDOW)[::-1]
"""Of a window's samples, the oldest first."""


def _distances(windows: Array, usual: Array, scale: Array) -> Array:
    """Return samples as the models see them; an unknown one is as usual."""
    result: Array = np.clip(np.nan_to_num((windows - usual) / scale), -_FAR, _FAR)
    return result


def _slopes(toward: Array, outputs: Array) -> Array:
    """Return the derivative of the batch's mean loss by the outputs; `toward` are the true changes."""
    errors = toward - outputs.reshape(len(outputs), len(TARGETS), len(QUANTILES))
    result: Array = slope(errors).reshape(outputs.shape) / np.float32(len(outputs))
    return result
