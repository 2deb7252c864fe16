"""Batch collapse: batches stay small, and equally small, while requests wait for a place in them.

Over the newest quarter of the window: the coefficient of variation of `running` and the fill, its mean over
the batch limit, are both below 30 %. An engine that has little to do runs small batches too and has not
collapsed: somebody must wait in at least half of the samples, and as many as a quarter of the batch. Where
the engine's own queue does not show them, they must be more than chance makes: what is in flight is counted
at another moment than what is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.skew.finding import Detector, Finding
from xds_server.skew.window import mean_known

if TYPE_CHECKING:
    from fleet.settings.skew import SkewSettings
    from xds_server.skew.window import Window

LEAST_WAITING: Final = 1.0
"""Requests, in at least half of the samples."""
LEAST_WAITING_SHARE: Final = 0.25
"""Of the requests that are computed: a scheduler's step between arrival and start always shows a few."""
CHANCE_DEVIATIONS: Final = 2.0
"""What is in flight varies by its square root; fewer than so many of that may only seem to wait."""
LEAST_PEAK: Final = 8.0
"""Requests. Where engines tell no batch limit, a largest batch below is little load and no limit."""


def find(window: Window, settings: SkewSettings) -> Finding:
    """Compare spread, fill and waiting over the newest quarter, of which every sample must be known.

    Where the engine tells no batch limit, the largest batch that its pool ran lately counts for it, if that
    was one worth the name.
    """
    batches, waits = window.recent("running"), window.recent("waiting")
    periods = window.recent_periods
    running, waiting = mean_known(batches, periods), mean_known(waits, periods)
    limit = mean_known(window.recent("batch_limit"))
    peak = window.peak()
    limit = np.where(limit > 0, limit, np.where(peak >= LEAST_PEAK, peak, np.nan))
    known = ~np.isnan(running) & ~np.isnan(waiting) & (limit > 0)
    nothing = np.full_like(running, np.nan)
    fill = np.divide(running, limit, out=nothing.copy(), where=known)
    # A batch of none while requests wait is as small and as even as can be.
    deviation = np.sqrt(np.square(batches - running).mean(axis=0))
    spread = np.where(running > 0, np.divide(deviation, running, out=nothing, where=running > 0), 0.0)
    queued = np.median(np.where(known, waits, 0.0), axis=0)
    told = np.median(np.nan_to_num(window.recent("queue_depth")), axis=0) >= LEAST_WAITING
    chance = np.where(
        told, 0.0, CHANCE_DEVIATIONS * np.sqrt(np.nan_to_num(mean_known(window.recent("in_flight"))))
    )
    least = np.maximum(LEAST_WAITING_SHARE * running, chance)
    held_up = (queued >= LEAST_WAITING) & (waiting >= least)
    border, calm = settings.collapse_ratio, settings.collapse_ratio / settings.release_ratio
    eased = (queued < LEAST_WAITING * settings.release_ratio) | (waiting < settings.release_ratio * least)
    return Finding(
        skewed=known & (fill < border) & (spread < border) & held_up,
        clear=known & ((fill >= calm) | (spread >= calm) | eased),
        known=known,
        evidence={
            "running": running,
            "waiting": waiting,
            "batch_limit": limit,
            "batch_fill_ratio": fill,
            "batch_spread_ratio": np.where(known, spread, np.nan),
        },
    )


DETECTOR: Final = Detector(
    find=find,
    begin_periods=lambda _: 1,  # it looks at several samples already
    action="batching_hint",
    hint="batches stay small while requests wait: look for a low batch limit, long contexts or little memory",
)
