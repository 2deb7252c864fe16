"""The last samples of every endpoint, in a ring of bounded size. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from xds_server.signals.forecast.quantiles import Array
    from xds_server.signals.rows import IntArray

MOST_SAMPLES: Final = 600
"""Of an endpoint: five minutes. A network that learns from one minute learns that minute by heart."""
MOST_CELLS: Final = 600_000
"""Samples of all endpoints together, unless that leaves an endpoint fewer than it needs."""


class History:
    """Samples by time, endpoint and channel; NaN is unknown."""

    def __init__(self, channels: int, least: int) -> None:
        """Keep `least` samples of an endpoint at the least."""
        self._least = least
        self._ring: Array = np.empty((least, 0, channels), np.float32)
        self._newest = -1
        self.count = 0
        """Samples so far, up to the size of the ring."""

    def add(self, sample: Array) -> None:
        """Take one sample of every endpoint, endpoints x channels."""
        self._newest = (self._newest + 1) % len(self._ring)
        self._ring[self._newest] = sample
        self.count = min(self.count + 1, len(self._ring))

    def remap_rows(self, source: IntArray) -> None:
        """Follow a changed membership (see `rows.remapped`)."""
        size = int(np.clip(MOST_CELLS // max(1, len(source)), self._least, MOST_SAMPLES))
        count = min(self.count, size)
        ring = np.full((size, len(source), self._ring.shape[2]), np.nan, np.float32)
        stayed = source >= 0
        ring[:count, stayed] = self.at(np.arange(count)[::-1, None], source[stayed])
        self._ring, self._newest, self.count = ring, count - 1, count

    def at(self, ages: IntArray, rows: IntArray | slice | int) -> Array:
        """Return the samples `ages` before the newest (0) of some endpoints; both broadcast."""
        result: Array = self._ring[(self._newest - ages) % len(self._ring), rows]
        return result
