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
    """Compare the newest quantiles, which are unknown if they come from too few requests."""
    p50, p99 = window.newest("latency_p50_seconds"), window.newest("latency_p99_seconds")
    # Unknown is not few: NaN compares as false.
    few = _requests(window, settings) < settings.tail_requests
    observed = (p50 > 0) & (p99 >= 0) & ~few
    ratio = np.divide(p99, p50, out=np.full_like(p50, np.nan), where=observed)
    short = p99 <= settings.tail_seconds * settings.release_ratio
    return Finding(
        skewed=(ratio > settings.tail_ratio) & (p99 > settings.tail_seconds),
        clear=observed & (short | (ratio <= max(1.0, settings.tail_ratio * settings.release_ratio))),
        observed=observed,
        evidence={"latency_p50_seconds": p50, "latency_p99_seconds": p99, "tail_ratio": ratio},
    )


def _requests(window: Window, settings: SkewSettings) -> FloatArray:
    """Return the number of requests of the newest quantiles; NaN: unknown.

    A rate is over the quantiles' own window, or over its part since the endpoint joined: the known periods
    without the first, whose begin is unknown.
    """
    rates = window.whole("requests_per_second")
    enough = min(window.periods, ceil(window.latency_seconds / settings.period_seconds))
    periods = (~np.isnan(rates[:enough])).sum(axis=0)
    seconds = np.where(periods >= enough, window.latency_seconds, (periods - 1) * settings.period_seconds)
    requests: FloatArray = rates[0] * seconds
    return requests


DETECTOR: Final = Detector(
    find=find,
    begin_periods=lambda settings: settings.tail_periods,
    action="trace_sampling",
    hint="a few requests take far longer than most: more picks are traced, so compare slow spans with others",
)
