"""How much an endpoint's answers are trusted: a factor in (0, 1] for its weight. Pure.

A recent share of faults is kept that halves with every answer, so it follows the newest two or three. While
it is above a half, trust falls with time, to the floor within two seconds: with time, not by count, because
what an endpoint gets falls with it. Each good answer multiplies trust, the more the longer the answers have
been good, and the fourth in a row makes it whole. 4xx counts where it speaks against the endpoint
(`refusals.py`), otherwise it changes nothing. An endpoint without answers grows back over seconds,
which lets it be tried (half open). Where its newest answer was good, trust grows with time as well, and
faster where the newest two were, because at light load no others may come for a while. So an engine that has
recovered has half of its fair share within 5 s at any load.

One endpoint's recent share of faults s, trust t, over a step of d seconds with k good answers:

    s <= 1/16                            t = 1                              the newest four were good
    s > 1/2, 3 faults, answered lately   t falls to t exp(-d / 0.45)
    s <= 1/4                             t grows to 1 - (1 - t g) exp(-d / 1.5)
    s <= 1/2, or no answer for 2 s       t grows to 1 - (1 - t g) exp(-d / 5.5)
    otherwise                            t stays;  g = 6 ^ (k (1 - 2 s)), at least 1
"""

from __future__ import annotations

from typing import Final

import numpy as np

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

FLOOR: Final = 0.02
FALL_SECONDS: Final = 0.45
"""Time constant of the fall: from 1 to the floor in 1.8 s."""
HIGH_SHARE: Final = 0.5
MINIMUM_FAULTS: Final = 3
"""Faults in a row, or nearly, before trust falls: one or two may be anybody's."""
GROWTH: Final = 6.0
"""Of trust by one good answer, when those before it were good as well."""
WHOLE_SHARE: Final = 1 / 16
"""Up to this share trust is whole: four good answers in a row, whatever was before."""
PROVEN_SHARE: Final = 1 / 4
"""Up to this share, two good answers in a row, trust grows with time too."""
PROVEN_SECONDS: Final = 1.5
"""Time constant of that growth."""
HALF_OPEN_SECONDS: Final = 5.5
"""Time constant of the growth without any answer after bad ones, or with one good answer since."""
QUIET_SECONDS: Final = 2.0
"""Without an answer for this time the evidence is old: the fall ends and the slow growth begins."""
LOST_BELOW: Final = 0.5
"""Below it trust is lost: picks leave the endpoint out."""
_FADED: Final = 0.05
"""A recent share below this forgets the faults behind it."""


class Trust(Rows):
    """Trust in every endpoint; newcomers are trusted. `now` in seconds, never earlier than before."""

    ratio: FloatArray = np.ones(1)
    recovered: BoolArray = np.zeros(1, np.bool_)
    """Whose trust has become whole with the newest step, after it was lost."""
    _lost: BoolArray = np.zeros(1, np.bool_)
    _share: FloatArray = np.zeros(1)
    _faults: FloatArray = np.zeros(1)
    _answered_at: FloatArray = np.full(1, -np.inf)
    _stepped_at = np.inf

    def step(self, ok: IntArray, faults: IntArray, now: float) -> FloatArray:
        """Take in the answers since the last step and return each endpoint's trust."""
        elapsed, self._stepped_at = max(0.0, now - self._stepped_at), now
        answers = ok + faults
        answered = answers > 0
        share = faults / np.maximum(answers, 1)
        self._share = np.where(
            answered, share + (self._share - share) * 0.5 ** np.minimum(answers, 64), self._share
        )
        self._faults = np.where(self._share < _FADED, 0.0, self._faults + faults)
        self._answered_at = np.where(answered, now, self._answered_at)
        quiet = now - self._answered_at >= QUIET_SECONDS
        failing = (self._share > HIGH_SHARE) & (self._faults >= MINIMUM_FAULTS) & ~quiet
        growth = np.clip(1.0 - self._share / HIGH_SHARE, 0.0, 1.0) * np.minimum(ok, 8)
        ratio = np.where(failing, self.ratio * np.exp(-elapsed / FALL_SECONDS), self.ratio * GROWTH**growth)
        proven = self._share <= PROVEN_SHARE
        opening = np.where(proven, PROVEN_SECONDS, HALF_OPEN_SECONDS)
        opened = 1.0 - (1.0 - ratio) * np.exp(-elapsed / opening)
        ratio = np.where(quiet | (self._share <= HIGH_SHARE), opened, ratio)
        self.ratio = np.clip(np.where(self._share <= WHOLE_SHARE, 1.0, ratio), FLOOR, 1.0)
        self.recovered = self._lost & (self.ratio >= 1.0)
        self._lost = (self._lost | (self.ratio < LOST_BELOW)) & ~self.recovered
        return self.ratio
