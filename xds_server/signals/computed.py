"""The signals that a tick computes, published where they moved or a second is over. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.signals import Source, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from xds_server.signals.rows import FloatArray

REFRESH_SECONDS: Final = 1.0
"""A number that does not move is observed again after this time: workers get what changed."""
_SOURCES: Final[Mapping[str, Source]] = {
    "first_byte_p50_seconds": Source.ACCESS_LOG,
    "first_byte_p99_seconds": Source.ACCESS_LOG,
    "duration_p99_seconds": Source.ACCESS_LOG,
    "requests_per_second": Source.ACCESS_LOG,
    "error_ratio": Source.ACCESS_LOG,
    "in_flight": Source.TRAFFIC,
    "picked_duration_p99_seconds": Source.TRAFFIC,
    "stalled": Source.TRAFFIC,
    "trust_ratio": Source.ACCESS_LOG,
    "ready": Source.PROBE,
    "context_tokens": Source.PROBE,
}
_ROWS: Final = rows_of(_SOURCES)
_SOURCE_OF_ROW: Final = np.array(list(_SOURCES.values()), np.uint8)[:, None]
_OF_ANSWERS: Final = frozenset(("first_byte_p50_seconds", "first_byte_p99_seconds", "duration_p99_seconds"))
_OLD_AS_ANSWERS: Final = np.array([name in _OF_ANSWERS for name in _SOURCES])[:, None]
"""Signals that are as old as the newest answer; the others are of the tick."""
_COUNTING: Final = np.array([name != "requests_per_second" for name in _SOURCES])
"""Signals whose movement is a change: a rate moves at every tick."""


class ComputedSignals:
    """The numbers that are published: one row a signal of `_SOURCES`, one column an endpoint."""

    def __init__(self, endpoints: int) -> None:
        self._values: FloatArray = np.full((len(_SOURCES), endpoints), np.nan)
        self._observed_at: FloatArray = self._values
        self._renew_at: FloatArray = np.full(endpoints, -np.inf)
        """When they are observed again at the latest."""

    def update(self, numbers: Mapping[str, FloatArray], answered_at: FloatArray, now: float) -> None:
        """Take the tick's numbers by signal; `answered_at` is when the newest answer came."""
        rows = np.stack([numbers[name] for name in _SOURCES])
        moved = (rows != self._values) & ~(np.isnan(rows) & np.isnan(self._values))
        renewed = moved[_COUNTING].any(axis=0) | (now >= self._renew_at)
        at = np.where(_OLD_AS_ANSWERS, answered_at, now)
        self._values = np.where(renewed, rows, self._values)
        self._observed_at = np.where(renewed, at, self._observed_at)
        self._renew_at[renewed] = now + REFRESH_SECONDS

    def write(self, values: FloatArray, observed_at: FloatArray, sources: np.ndarray) -> None:
        """Write their rows of a table's arrays."""
        unknown = np.isnan(self._values)
        values[_ROWS] = self._values
        observed_at[_ROWS] = np.where(unknown, np.nan, self._observed_at)
        sources[_ROWS] = np.where(unknown, Source.NONE, _SOURCE_OF_ROW)
