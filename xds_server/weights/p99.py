"""`p99`: 100 up to 1.1 x baseline, beyond it 100 x 1.5 x baseline / p99, at least 10 and at most 100.

The baseline is a setting, or the median of the pool's P99. Between 1.1 and 1.5 baselines the second formula
alone would be above 100, more for the slower one, so it is cut off there: more latency is never more weight.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final

import numpy as np

from fleet.columns import fill_unknown

if TYPE_CHECKING:
    from fleet.settings import P99Settings
    from xds_server.weights.columns import Columns, FloatArray

FULL: Final = 100.0


def scores(columns: Columns, settings: P99Settings) -> FloatArray:
    """Return one score an endpoint in [least_score, 100]. Unknown is the peers' mean latency."""
    latency = fill_unknown(columns["latency_p99_seconds"])
    if not latency.size:
        return latency
    baseline = settings.baseline_seconds
    if baseline is None:
        baseline = float(np.median(latency))
    beyond = latency > settings.tolerance_ratio * baseline
    lowered = FULL * settings.factor * baseline / np.where(beyond, latency, 1.0)
    result: FloatArray = np.where(beyond, np.clip(lowered, settings.least_score, FULL), FULL)
    return result


def reason(columns: Columns, row: int, settings: P99Settings) -> str:
    """Name the latency, and how many baselines it is where the baseline is a setting."""
    latency = float(columns["latency_p99_seconds"][row])
    if isnan(latency):
        return "unknown"
    if settings.baseline_seconds is None:
        return f"p99 {latency:.2g} s"
    return f"p99 {latency:.2g} s, {latency / settings.baseline_seconds:.2g} x baseline"
