"""Long tail: P99 of the latency above three times P50, for three periods in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.finding import Detector, Finding
from xds_server.skew.window import mean_known

if TYPE_CHECKING:
    from fleet.settings.skew import SkewSettings
    from xds_server.skew.window import Window


def find(window: Window, settings: SkewSettings) -> Finding:
    """Compare the newest quantiles. Where too few requests make them, they are unknown."""
    p50, p99 = window.newest("latency_p50_seconds"), window.newest("latency_p99_seconds")
    requests = mean_known(window.whole("requests_per_second")) * settings.window_seconds
    # Not told is not few: NaN compares as false.
    few = requests < settings.tail_requests
    known = (p50 > 0) & (p99 >= 0) & ~few
    ratio = np.divide(p99, p50, out=np.full_like(p50, np.nan), where=known)
    return Finding(
        skewed=ratio > settings.tail_ratio,
        clear=ratio <= max(1.0, settings.tail_ratio * settings.release_ratio),
        known=known,
        evidence={"latency_p50_seconds": p50, "latency_p99_seconds": p99, "tail_ratio": ratio},
    )


DETECTOR: Final = Detector(
    find=find,
    begin_periods=lambda settings: settings.tail_periods,
    action="trace_sampling",
    hint="a few requests take far longer than most: more picks are traced, so compare slow spans with others",
)
