"""Long tail: P99 of the latency above half a second and three times P50, for three periods in a row."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.finding import Detector, Finding

if TYPE_CHECKING:
    from fleet.settings.skew import SkewSettings
    from xds_server.skew.layout import FloatArray
    from xds_server.skew.window import Window


def find(window: Window, settings: SkewSettings) -> Finding:
    """Compare the newest quantiles. Where too few requests make them, they are unknown."""
    p50, p99 = window.newest("latency_p50_seconds"), window.newest("latency_p99_seconds")
    # Not told is not few: NaN compares as false.
    few = _requests(window, settings) < settings.tail_requests
    known = (p50 > 0) & (p99 >= 0) & ~few
    ratio = np.divide(p99, p50, out=np.full_like(p50, np.nan), where=known)
    short = p99 <= settings.tail_seconds * settings.release_ratio
    return Finding(
        skewed=(ratio > settings.tail_ratio) & (p99 > settings.tail_seconds),
        clear=known & (short | (ratio <= max(1.0, settings.tail_ratio * settings.release_ratio))),
        known=known,
        evidence={"latency_p50_seconds": p50, "latency_p99_seconds": p99, "tail_ratio": ratio},
    )


def _requests(window: Window, settings: SkewSettings) -> FloatArray:
    """Return of how many requests the newest quantiles are; NaN where it is not told.

    A rate is over the quantiles' own window, or over what has passed of it since the endpoint is there: the
    periods that tell, less the first, of which the beginning is not known.
    """
    rates = window.whole("requests_per_second")
    enough = min(window.periods, ceil(window.latency_seconds / settings.period_seconds))
    told = (~np.isnan(rates[:enough])).sum(axis=0)
    seconds = np.where(told >= enough, window.latency_seconds, (told - 1) * settings.period_seconds)
    requests: FloatArray = rates[0] * seconds
    return requests


DETECTOR: Final = Detector(
    find=find,
    begin_periods=lambda settings: settings.tail_periods,
    action="trace_sampling",
    hint="a few requests take far longer than most: more picks are traced, so compare slow spans with others",
)
