"""A linear quantile model of a window of samples. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xds_server.signals.forecast.quantiles import Adam

if TYPE_CHECKING:
    from collections.abc import Callable

    from xds_server.signals.forecast.quantiles import Array


class Linear:
    """outputs = samples x weights + bias. All start at 0."""

    def __init__(self, samples: int, channels: int, outputs: int) -> None:
        self._weights: Array = np.zeros((samples * channels, outputs), np.float32)
        self._bias: Array = np.zeros(outputs, np.float32)
        self._adam = Adam((self._weights, self._bias))

    def __call__(self, windows: Array) -> Array:
        """Return outputs, rows x outputs, of windows, samples x rows x channels."""
        return self._outputs(_flat(windows))

    def learn(self, windows: Array, slope: Callable[[Array], Array]) -> None:
        """Go one step; `slope` is the derivative of the loss by the outputs."""
        flat = _flat(windows)
        slopes = slope(self._outputs(flat))
        self._adam.step((flat.T @ slopes, slopes.sum(axis=0)))

    def _outputs(self, flat: Array) -> Array:
        result: Array = flat @ self._weights + self._bias
        return result


def _flat(windows: Array) -> Array:
    return windows.transpose(1, 0, 2).reshape(windows.shape[1], -1)
