"""Findings to events that begin and end: several periods in a row for both, and a band between."""

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
    """An event of which nothing is known any more ends after so many."""


class Latch:
    """One detector's state, a column each."""

    def __init__(self, columns: int) -> None:
        self.active: BoolArray = np.zeros(columns, dtype=np.bool_)
        self._streaks = np.zeros((3, columns), dtype=np.intp)
        """Periods in a row: skewed, clear, unknown."""

    def rearrange(self, columns: int, here: IntArray, there: IntArray) -> None:
        """Take another layout; whoever stays keeps its state."""
        active, streaks = self.active, self._streaks
        self.active = np.zeros(columns, dtype=np.bool_)
        self._streaks = np.zeros((3, columns), dtype=np.intp)
        self.active[here] = active[there]
        self._streaks[:, here] = streaks[:, there]

    def skip(self, periods: int) -> None:
        """Let periods pass of which nothing is known."""
        self._streaks[:2] = 0
        self._streaks[2] += periods

    def step(self, finding: Finding, patience: Patience) -> tuple[IntArray, IntArray]:
        """Take one period's verdicts; returns the columns that begin and those that end.

        Unknown breaks a row of skewed and of clear periods, and by itself ends an event only late.
        """
        seen = np.stack((finding.skewed, finding.clear, ~finding.known))
        self._streaks = np.where(seen, self._streaks + 1, 0)
        skewed, clear, unknown = self._streaks
        begins = ~self.active & (skewed >= patience.begin)
        ends = self.active & ((clear >= patience.end) | (unknown >= patience.unknown))
        self.active = (self.active | begins) & ~ends
        return np.flatnonzero(begins), np.flatnonzero(ends)
