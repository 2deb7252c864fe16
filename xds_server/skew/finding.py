"""Detectors, and their verdicts for each column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.settings.skew import SkewSettings
    from xds_server.skew.layout import BoolArray, FloatArray
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
