"""Detectors, their verdicts for each column, and the events that these make.

An event begins and ends after several such periods in a row, with a band between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.settings.skew import SkewSettings
    from xds_server.skew.layout import BoolArray, FloatArray, IntArray
    from xds_server.skew.window import Window

Action = Literal["trace_sampling", "batching_hint", "warm_up_hint"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Verdicts of one period, one per column. An observed column may be neither skewed nor clear."""

    skewed: BoolArray
    clear: BoolArray
    observed: BoolArray
    """A column that is not observed is neither skewed nor clear."""
    evidence: Mapping[str, FloatArray]

    def only(self, columns: BoolArray) -> Finding:
        """Return the same with all other columns unobserved."""
        return Finding(self.skewed & columns, self.clear & columns, self.observed & columns, self.evidence)


@dataclass(frozen=True, slots=True)
class Detector:
    """One kind of skew."""

    find: Callable[[Window, SkewSettings], Finding]
    begin_periods: Callable[[SkewSettings], int]
    """An event begins after this many skewed periods in a row."""
    action: Action
    hint: str
    """Its meaning and the next step, for operators."""


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
