"""From findings to events: begin and end each need several periods in a row, with a band between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from xds_server.skew.finding import Finding
    from xds_server.skew.layout import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class Patience:
    """Periods in a row."""

    begin: int
    end: int
    unknown: int
    """An event ends after this many unobserved periods."""


class Latch:
    """One detector's state, a column each."""

    def __init__(self, columns: int) -> None:
        self.active: BoolArray = np.zeros(columns, dtype=np.bool_)
        self._streaks = np.zeros((3, columns), dtype=np.intp)
        """Periods in a row: skewed, clear, unknown."""

    def rearrange(self, columns: int, here: IntArray, there: IntArray) -> None:
        """Take another layout; endpoints and pools in both keep their state."""
        active, streaks = self.active, self._streaks
        self.active = np.zeros(columns, dtype=np.bool_)
        self._streaks = np.zeros((3, columns), dtype=np.intp)
        self.active[here] = active[there]
        self._streaks[:, here] = streaks[:, there]

    def skip(self, periods: int) -> None:
        """Count unobserved periods."""
        self._streaks[:2] = 0
        self._streaks[2] += periods

    def step(self, finding: Finding, patience: Patience) -> tuple[IntArray, IntArray]:
        """Take one period's verdicts; returns the columns that begin and those that end.

        An unobserved period interrupts rows of skewed and clear ones; many in a row end an event.
        """
        verdicts = np.stack((finding.skewed, finding.clear, ~finding.observed))
        self._streaks = np.where(verdicts, self._streaks + 1, 0)
        skewed, clear, unknown = self._streaks
        begins = ~self.active & (skewed >= patience.begin)
        ends = self.active & ((clear >= patience.end) | (unknown >= patience.unknown))
        self.active = (self.active | begins) & ~ends
        return np.flatnonzero(begins), np.flatnonzero(ends)
