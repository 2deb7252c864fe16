"""The knee of a policy: the highest rate at which the replicas keep up with a trace.

At the knee, the p90 of the time to first token is at most `factor` times the p90 that the same requests have
each alone on an idle, cold replica. That limit is the same for all policies.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from warmroute.replay.figures import figures
from warmroute.replay.job import counting, process_trace, replay_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from warmroute.replay.figures import Figures
    from warmroute.replay.job import Job
    from warmroute.replay.run import Outcome
    from warmroute.replay.trace import Trace

KNEE_FACTOR: Final = 2.0
PRECISION: Final = 0.02
"""Of the knee's rate, relative."""
LEAST_RATE: Final = 1e-3
LARGEST_RATE: Final = 1e3
USUAL_REPLAYS: Final = 8
"""That one search takes; for progress bars."""


class Knee(NamedTuple):
    """The highest rate within the limit."""

    rate: float
    """Multiple of the trace's own; 0: every rate is over the limit."""
    limit_seconds: float
    """Of the p90 of the time to first token."""
    figures: Figures
    """At that rate."""


def highest(within: Callable[[float], bool], rate: float, precision: float = PRECISION) -> float:
    """Return the highest rate that is within a limit, exact to `precision`; 0 if none is.

    It bisects the rate's logarithm, and begins at `rate`.
    """
    low, high = 0.0, inf
    while high > low * (1 + precision) and LEAST_RATE <= rate <= LARGEST_RATE:
        if within(rate):
            low = rate
        else:
            high = rate
        rate = low * 2 if high == inf else sqrt(low * high) if low else high / 2
    return low


def limit_seconds(outcome: Outcome, factor: float) -> float:
    """Return the limit of the p90 of the time to first token: the same for all policies."""
    return factor * float(np.percentile(outcome.alone, 90))


def knee(
    trace: Trace,
    job: Job,
    factor: float = KNEE_FACTOR,
    on_request: Callable[[int], None] = lambda _count: None,
) -> Knee:
    """Search for the highest rate within the limit, from `job.rate`.

    `on_request` gets the number of requests that the replay under way has sent so far.
    """
    tried: dict[float, Knee] = {}

    def within(rate: float) -> bool:
        outcome = replay_job(trace, replace(job, rate=rate), on_request)
        limit = limit_seconds(outcome, factor)
        tried[rate] = Knee(rate, limit, figures(outcome, job.limits))
        return tried[rate].figures.ttft_p90 <= limit

    rate = highest(within, job.rate)
    return tried[rate] if rate else tried[min(tried)]._replace(rate=0.0)


def run_sweep(job: Job, factor: float) -> Knee:
    """Search a knee in a process that `job.begin_process` has prepared."""
    return knee(process_trace(), job, factor, counting())
