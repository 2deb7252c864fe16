"""Figures of replays, each with its confidence interval over seeds."""

from __future__ import annotations

from math import nan, sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from warmroute.replay.run import Outcome

_T_975: Final = (
    nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided 95 %, by degrees of freedom; beyond them the last one is close enough."""


class Figures(NamedTuple):
    """The figures of one replay. Times, in seconds, are those of whole answers.

    If clients leave, times are those of the other requests, and so favour policies that lose slow ones.
    """

    ttft_p50: float
    """Time to first token."""
    ttft_p90: float
    ttft_p99: float
    e2e_p50: float
    """From arrival to the last token."""
    e2e_p90: float
    e2e_p99: float
    slowdown_p50: float
    """Time to first token over that of the same request alone on an idle, cold replica."""
    slowdown_p90: float
    slowdown_p99: float
    tpot_p50: float
    """Seconds per output token after the first."""
    tpot_p90: float
    tpot_p99: float
    hit_ratio: float
    """Share of the prompt tokens that an engine had in its cache."""
    busiest_over_mean: float
    """Prompt tokens computed and tokens generated of the busiest engine over the mean of all."""
    busy_share: float
    """Share of the time in which an engine's steps ran, mean over engines."""
    goodput: float
    """Share of the requests within the limits for the time to first token and per output token."""
    failed: float
    """Share of the requests without a whole answer, and without a client that left."""
    left: float
    """Share of the requests whose clients left."""


class Limits(NamedTuple):
    """Limits of a request that counts for the goodput, in seconds."""

    ttft: float = 2.0
    tpot: float = 0.1


def figures(outcome: Outcome, limits: Limits) -> Figures:
    """Compute the figures of one replay."""
    answered = ~(outcome.cancelled | outcome.failed)
    busy, work = outcome.busy_seconds, outcome.engine_tokens
    good = (outcome.ttft <= limits.ttft) & ~(outcome.tpot > limits.tpot)
    ttft, e2e, tpot = _percentiles(outcome.ttft), _percentiles(outcome.e2e), _percentiles(outcome.tpot)
    slowdown = _percentiles(outcome.ttft / outcome.alone)
    return Figures(
        ttft_p50=ttft[0],
        ttft_p90=ttft[1],
        ttft_p99=ttft[2],
        e2e_p50=e2e[0],
        e2e_p90=e2e[1],
        e2e_p99=e2e[2],
        slowdown_p50=slowdown[0],
        slowdown_p90=slowdown[1],
        slowdown_p99=slowdown[2],
        tpot_p50=tpot[0],
        tpot_p90=tpot[1],
        tpot_p99=tpot[2],
        hit_ratio=float(
            outcome.cached_tokens[answered].sum() / max(outcome.prompt_tokens[answered].sum(), 1)
        ),
        busiest_over_mean=float(work.max() / work.mean()) if work.any() else nan,
        busy_share=float(busy.mean() / outcome.seconds),
        goodput=float(good.mean()),
        failed=float(outcome.failed.mean()),
        left=float(outcome.cancelled.mean()),
    )


class Interval(NamedTuple):
    """A mean over seeds and the half-width of its 95 % confidence interval; NaN with one seed."""

    mean: float
    half_width: float


def over_seeds(runs: Sequence[Figures]) -> dict[str, Interval]:
    """Return each figure's mean and interval."""
    return {name: interval([getattr(run, name) for run in runs]) for name in Figures._fields}


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of one value a seed, with its interval."""
    count = len(values)
    if count < 2:
        return Interval(values[0], nan)
    t = _T_975[min(count, len(_T_975)) - 1]
    return Interval(fmean(values), t * stdev(values) / sqrt(count))


def _percentiles(column: NDArray[np.float64]) -> list[float]:
    """Return the 50th, 90th and 99th of the numbers; NaN without any."""
    numbers = column[~np.isnan(column)]
    return [float(value) for value in np.percentile(numbers, (50, 90, 99))] if numbers.size else [nan] * 3
