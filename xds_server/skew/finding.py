"""What a detector says of each column, and what a detector is."""

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
    """Verdicts of one period, a column each. Neither skewed nor clear, though known, is in between."""

    skewed: BoolArray
    clear: BoolArray
    known: BoolArray
    """Unknown is never skewed and never clear."""
    evidence: Mapping[str, FloatArray]

    def only(self, columns: BoolArray) -> Finding:
        """Return the same with nothing known of other columns."""
        return Finding(self.skewed & columns, self.clear & columns, self.known & columns, self.evidence)


@dataclass(frozen=True, slots=True)
class Detector:
    """One kind of skew."""

    find: Callable[[Window, SkewSettings], Finding]
    begin_periods: Callable[[SkewSettings], int]
    """An event begins when the finding says so in so many periods in a row."""
    action: Action
    hint: str
    """What it means and what to do, for operators."""
