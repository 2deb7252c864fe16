"""Quantiles by their pinball loss (Koenker and Bassett 1978), and the steps that lower it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

Array = npt.NDArray[np.float32]
QUANTILES: Final[Array] = np.array((0.5, 0.9), np.float32)
_FASTEST: Final = 0.01
"""Step size of the first steps, in parameters' units."""
_SLOWEST: Final = 0.001
"""Step size in the long run: the load never stops changing, and neither does learning."""
_SLOWER_AFTER: Final = 50.0
"""Steps after which the excess over the slowest has halved."""
_MOMENTUM: Final = 0.9
_POWER: Final = 0.999


def pinball(errors: Array) -> Array:
    """Return the loss of errors (observed - forecast), whose last axis is that of `QUANTILES`."""
    result: Array = np.maximum(QUANTILES * errors, (QUANTILES - 1) * errors)
    return result


def slope(errors: Array) -> Array:
    """Return the derivative of `pinball` by the forecast; 0 where the error is unknown (NaN)."""
    return np.where(np.isnan(errors), np.float32(0), np.where(errors >= 0, -QUANTILES, 1 - QUANTILES))


class Adam:
    """Steps against gradients, each parameter at its own pace (Kingma and Ba 2015)."""

    def __init__(self, parameters: Sequence[Array]) -> None:
        """Take parameters, which `step` changes in place."""
        self._parameters = parameters
        self._means = [np.zeros_like(each) for each in parameters]
        self._squares = [np.zeros_like(each) for each in parameters]
        self._steps = 0

    def step(self, gradients: Sequence[Array]) -> None:
        """Go one step; a gradient for each parameter."""
        self._steps += 1
        size = _SLOWEST + (_FASTEST - _SLOWEST) / (1.0 + self._steps / _SLOWER_AFTER)
        size *= (1.0 - _POWER**self._steps) ** 0.5 / (1.0 - _MOMENTUM**self._steps)
        for parameter, gradient, mean, square in zip(
            self._parameters, gradients, self._means, self._squares, strict=True
        ):
            mean += (1.0 - _MOMENTUM) * (gradient - mean)
            square += (1.0 - _POWER) * (gradient * gradient - square)
            parameter -= size * mean / (np.sqrt(square) + 1e-6)
