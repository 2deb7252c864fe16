"""Engines that answer picks well while none of their counters moves: their answers may be errors. Pure.

A 200 may carry an error event. To Envoys it is a good answer, and a quick one. So an engine is unproductive
if it has answered `MANY` picks or more, over `PATIENCE_SECONDS` or longer, and its counters have not moved
since the first of them, while those of another engine of its pool have moved with its answers. Without the
latter, counters of this pool may say nothing of its requests.

That is shown and costs nothing: the page may be another engine's. `ext_proc.pick.pace` keeps quick
answers from drawing requests.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

MANY: Final = 10
PATIENCE_SECONDS: Final = 5.0


class Unproductive(Rows):
    """Every endpoint. `now` in seconds, never earlier than before."""

    _progress: FloatArray = np.full(1, np.nan)
    _answers: IntArray = np.zeros(1, np.int64)
    """Since the counters moved."""
    _since: FloatArray = np.full(1, np.inf)
    """When the first of them came."""
    _worked_at: FloatArray = np.full(1, -np.inf)
    """When counters moved after answers."""

    def step(self, answers: IntArray, progress: FloatArray, pools: IntArray, now: float) -> BoolArray:
        """Return which are unproductive now.

        `answers` are good ones to picks since the last step, `progress` is NaN where it is unknown, `pools`
        is the number of each one's pool.
        """
        moved = np.isfinite(progress) & (progress != self._progress)
        self._worked_at = np.where(moved & (self._answers + answers > 0), now, self._worked_at)
        self._answers = np.where(moved, 0, self._answers) + answers
        self._since = np.where(self._answers == 0, np.inf, np.minimum(self._since, now))
        self._since = np.where(moved & (self._answers > 0), now, self._since)
        self._progress = np.where(np.isfinite(progress), progress, self._progress)
        worked_at = np.full(int(pools.max(initial=0)) + 1, -np.inf)
        np.maximum.at(worked_at, pools, self._worked_at)
        patient = (self._answers >= MANY) & (now - self._since >= PATIENCE_SECONDS)
        result: BoolArray = patient & np.isfinite(progress) & (worked_at[pools] > self._since)
        return result
