"""Memory as the silent zone looks at it: up at once, down in time, and later the more often it came back.

Readings that go in and out of the zone would take the weight up and down with them. So, as routers do with
routes that flap, each return into the zone is remembered for some minutes, and from the second on what counts
stays where it is for longer.
"""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from xds_server.weights.columns import FloatArray

_FORGET_SECONDS: Final = 180.0
"""Time constant with which returns are forgotten."""
_HOLD_SECONDS: Final = 30.0
"""For each return beyond the first."""
_MOST_HOLD_SECONDS: Final = 120.0
_SLOWER: Final = 3.0
"""For each return beyond the first, of the way down."""
_RETURN: Final = 0.02
"""A rise by more, from below the zone or after a drop, is a return."""
_FADE_PER_SECOND: Final = 0.05
"""What falls no faster is no drop: a figure that fades where nothing is sent, and is read again, does not
flap."""


class Peaks:
    """One pool's memory over time."""

    def __init__(self) -> None:
        self._addresses: tuple[str, ...] = ()
        self._stepped_at = 0.0
        # Rows: what counts; its least since the last return; returns; the seconds since the last rise; the
        # last reading; 1 after a drop.
        self._state: FloatArray = np.zeros((6, 0))

    def step(
        self, addresses: tuple[str, ...], values: FloatArray, now: float, release_seconds: float, zone: float
    ) -> FloatArray:
        """Take the values of `now` (no NaN) and return what counts; the silent zone begins at `zone`.

        Down it goes with the time constant `release_seconds`; 0 switches all of this off.
        """
        if addresses != self._addresses:
            self._align(addresses, values)
        if values.max(initial=0.0) <= zone and self._state[0].max(initial=0.0) <= zone:
            # Below the zone nothing stays up; what is remembered fades at the next step that matters.
            self._state[:2] = self._state[4] = values
            return values
        elapsed = max(0.0, now - self._stepped_at)
        self._stepped_at = now
        level, least, returns, since, last, dropped = self._state
        returns = returns * exp(-elapsed / _FORGET_SECONDS)
        since = since + elapsed
        up = values >= level
        dropped = np.where(last - values > _RETURN + _FADE_PER_SECOND * elapsed, 1.0, dropped)
        left_before = (least <= zone) | (dropped > 0)
        back = up & (values > zone) & left_before & (values - least > _RETURN)
        returns = np.where(back, returns + 1.0, returns)
        hold = np.clip(_HOLD_SECONDS * (returns - 1.0), 0.0, _MOST_HOLD_SECONDS)
        if release_seconds > 0:
            # Slower too, so that the next return is a small step.
            remaining_ratio = np.exp(
                -elapsed / (release_seconds * np.maximum(1.0, _SLOWER * (returns - 1.0)))
            )
            fallen = np.where(since >= hold, values + (level - values) * remaining_ratio, level)
        else:
            fallen = values
        level = np.where(up, values, fallen)
        least = np.where(back, level, np.minimum(least, level))
        since, dropped = np.where(up, 0.0, since), np.where(back, 0.0, dropped)
        self._state = np.array([level, least, returns, since, values, dropped])
        return level

    def _align(self, addresses: tuple[str, ...], values: FloatArray) -> None:
        """Keep the levels of those that stay; the others begin with their values."""
        rows = {address: row for row, address in enumerate(self._addresses)}
        index = np.array([rows.get(address, -1) for address in addresses], dtype=np.intp)
        none = np.zeros(values.size)
        fresh = np.array([values, values, none, none, values, none])
        stayed = index >= 0
        self._state = np.where(stayed, self._state[:, index], fresh) if stayed.any() else fresh
        self._addresses = addresses
