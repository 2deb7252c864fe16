"""Batch collapse: batches stay small, and equally small, while requests wait for a place in them.

Over the newest quarter of the window: the coefficient of variation of `running` and the fill, its mean over
the batch limit, are both below 30 %. An idle engine runs small batches too and has not collapsed: requests
must wait in at least half of the samples, and as many as a quarter of the batch. If the engine's own queue
does not show them, they must be more than chance explains, since requests in flight are counted at another
moment than running ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.finding import Detector, Finding
from xds_server.skew.window import mean_observed

if TYPE_CHECKING:
    from fleet.settings.skew import SkewSettings
    from xds_server.skew.window import Window

LEAST_WAITING: Final = 1.0
"""Requests, in at least half of the samples."""
LEAST_WAITING_SHARE: Final = 0.25
"""Of the running requests: a scheduler's step between arrival and start always shows a few waiting ones."""
CHANCE_DEVIATIONS: Final = 2.0
"""Waiting requests up to this many standard deviations (the square root of those in flight) may be chance."""
LEAST_PEAK: Final = 8.0
"""Requests. A largest batch below this shows little load, so it does not replace a missing batch limit."""


def find(window: Window, settings: SkewSettings) -> Finding:
    """Compare spread, fill and waiting over the newest quarter, whose samples must all be known.

    The largest recent batch of the pool replaces a missing batch limit, if it is at least `LEAST_PEAK`.
    """
    batches, waits = window.recent("running"), window.recent("waiting")
    periods = window.recent_periods
    running, waiting = mean_observed(batches, periods), mean_observed(waits, periods)
    limit = mean_observed(window.recent("batch_limit"))
    peak = window.peak()
    limit = np.where(limit > 0, limit, np.where(peak >= LEAST_PEAK, peak, np.nan))
    observed = ~np.isnan(running) & ~np.isnan(waiting) & (limit > 0)
    nothing = np.full_like(running, np.nan)
    fill = np.divide(running, limit, out=nothing.copy(), where=observed)
    # An empty batch while requests wait is the smallest and most even of all.
    deviation = np.sqrt(np.square(batches - running).mean(axis=0))
    spread = np.where(running > 0, np.divide(deviation, running, out=nothing, where=running > 0), 0.0)
    queued = np.median(np.where(observed, waits, 0.0), axis=0)
    has_queue = np.median(np.nan_to_num(window.recent("queue_depth")), axis=0) >= LEAST_WAITING
    chance = np.where(
        has_queue, 0.0, CHANCE_DEVIATIONS * np.sqrt(np.nan_to_num(mean_observed(window.recent("in_flight"))))
    )
    least = np.maximum(LEAST_WAITING_SHARE * running, chance)
    waits_enough = (queued >= LEAST_WAITING) & (waiting >= least)
    border, calm = settings.collapse_ratio, settings.collapse_ratio / settings.release_ratio
    eased = (queued < LEAST_WAITING * settings.release_ratio) | (waiting < settings.release_ratio * least)
    return Finding(
        skewed=observed & (fill < border) & (spread < border) & waits_enough,
        clear=observed & ((fill >= calm) | (spread >= calm) | eased),
        observed=observed,
        evidence={
            "running": running,
            "waiting": waiting,
            "batch_limit": limit,
            "batch_fill_ratio": fill,
            "batch_spread_ratio": np.where(observed, spread, np.nan),
        },
    )


DETECTOR: Final = Detector(
    find=find,
    begin_periods=lambda _: 1,  # it looks at several samples already
    action="batching_hint",
    hint="batches stay small while requests wait: look for a low batch limit, long contexts or little memory",
)
