"""A small temporal convolution network over a window of samples. Pure.

Causal convolutions of kernel 2 with dilations 1, 2, 4, ... (van den Oord et al. 2016; Bai, Kolter and Koltun
2018). Only the newest output is used. It depends on every second position of the layer
below, so a layer joins neighbours in pairs and halves the window:

    y[t] = f(x[2t] A + x[2t + 1] B + b)        f(v) = max(v, v / 10)

The last layer is linear and starts at 0, so that an untrained network forecasts no change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.signals.forecast.quantiles import Adam

if TYPE_CHECKING:
    from collections.abc import Callable

    from xds_server.signals.forecast.quantiles import Array

_WIDTH: Final = 12
"""Channels between layers."""
_LEAK: Final = np.float32(0.1)
"""Slope of f below 0."""


class Tcn:
    """One network for all endpoints."""

    def __init__(self, samples: int, channels: int, outputs: int, seed: int) -> None:
        """`samples` is a power of 2. Equal seeds make equal networks."""
        draw, size = np.random.default_rng(seed), channels
        self._weights: list[Array] = []
        for _ in range(samples.bit_length() - 1):
            # He et al. 2015: the outputs are as wide as the inputs.
            drawn = draw.standard_normal((2 * size, _WIDTH)) / np.sqrt(size)
            self._weights.append(drawn.astype(np.float32))
            size = _WIDTH
        self._biases: list[Array] = [np.zeros(_WIDTH, np.float32) for _ in self._weights]
        self._head: Array = np.zeros((_WIDTH, outputs), np.float32)
        self._head_bias: Array = np.zeros(outputs, np.float32)
        self._adam = Adam((*self._weights, *self._biases, self._head, self._head_bias))

    def __call__(self, windows: Array) -> Array:
        """Return outputs, rows x outputs, of windows, samples x rows x channels."""
        newest, _ = self._layers(windows)
        result: Array = newest @ self._head + self._head_bias
        return result

    def learn(self, windows: Array, slope: Callable[[Array], Array]) -> None:
        """Go one step; `slope` is the derivative of the loss by the outputs."""
        newest, pairs = self._layers(windows)
        slopes = slope(newest @ self._head + self._head_bias)
        values, back = newest[None], _product(slopes, self._head.T)[None]
        weights, biases = [], []
        for layer in reversed(range(len(pairs))):
            back = np.where(values > 0, back, _LEAK * back)
            weights.append(np.tensordot(pairs[layer], back, axes=((0, 1), (0, 1))))
            biases.append(back.sum(axis=(0, 1)))
            if layer:
                values = _apart(pairs[layer])
                back = _apart(_product(back, self._weights[layer].T))
        self._adam.step((*weights[::-1], *biases[::-1], newest.T @ slopes, slopes.sum(axis=0)))

    def _layers(self, windows: Array) -> tuple[Array, list[Array]]:
        """Return the last layer's newest output and each layer's inputs, in pairs."""
        values, pairs = windows, []
        for weights, bias in zip(self._weights, self._biases, strict=True):
            joined = np.concatenate((values[0::2], values[1::2]), axis=-1)
            pairs.append(joined)
            values = joined @ weights + bias
            values = np.maximum(values, _LEAK * values)
        return values[0], pairs


def _product(left: Array, right: Array) -> Array:
    result: Array = left @ right
    return result


def _apart(pairs: Array) -> Array:
    """Return pairs of neighbours as one sequence again."""
    half = pairs.shape[-1] // 2
    result = np.empty((2 * pairs.shape[0], pairs.shape[1], half), np.float32)
    result[0::2], result[1::2] = pairs[..., :half], pairs[..., half:]
    return result
