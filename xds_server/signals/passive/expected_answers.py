"""Answers expected of an endpoint since it last showed life: its share of those that its pool gave. Pure.

Requests without a pick go by weights, and no worker counts them while they are in flight. So of N such
answers of a pool an endpoint with the share s should have given s N, and how many it did give is Poisson
distributed around that: none of 7 has a probability of 0.1 %. That is enough where something else speaks
against the engine too: a page that has fallen silent, or one that shows requests while its counters stand.

An engine whose page shows no requests, or that has no page, may be idle, so it takes more. First, 20: an
engine with one answer a second would pass 7 by chance every quarter of an hour. Second, only requests without
a session count, for those of one session stay on one engine and are no draws of their own. Third, most of the
pool has answered: where it has not, requests are not spread by weights at all. Fourth, none has failed there
lately: Envoy sends nothing to an endpoint for a while that refused its connections.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from xds_server.signals.rows import BoolArray, FloatArray, IntArray, Rows

ENOUGH: Final = 7.0
ENOUGH_OF_IDLE: Final = 20.0
EJECTED_SECONDS: Final = 15.0
"""After a fault Envoy may avoid an endpoint for ten seconds at most; some requests end later."""
_MOST: Final = 0.5


class Spread(NamedTuple):
    """What went by weights since the last step, one number a row."""

    shares: FloatArray
    """Of the pool's weights in force; 0 for those that Envoys are not to use."""
    pools: IntArray
    """Number of each endpoint's pool, from 0."""
    answered: IntArray
    """Answers to the end of requests without a pick."""
    sessionless: IntArray
    """Those of them that had no session either."""
    faults: IntArray
    """Requests that failed there."""


class ExpectedAnswers(Rows):
    """The answers that are expected of every endpoint and did not come."""

    since: FloatArray = np.full(1, np.inf)
    """When the first of them was expected; +inf: none is."""
    _answers: FloatArray = np.zeros(1)
    _draws: FloatArray = np.zeros(1)
    _failed_at: FloatArray = np.full(1, -np.inf)

    def add(self, spread: Spread | None, alive: BoolArray, now: float) -> None:
        """Add the shares of what the pools have answered; nothing is expected of those that are `alive`."""
        if spread is not None:
            self._answers = self._answers + spread.shares * _of_pool(spread.answered, spread.pools)
            self._draws = self._draws + spread.shares * _of_pool(spread.sessionless, spread.pools)
            self._failed_at = np.where(spread.faults > 0, now, self._failed_at)
        self._answers = np.where(alive, 0.0, self._answers)
        self._draws = np.where(alive, 0.0, self._draws)
        self.since = np.where(self._answers > 0, np.minimum(self.since, now), np.inf)

    def enough(self, spread: Spread | None, suspect: BoolArray, now: float) -> BoolArray:
        """Return which silences are no chance; `suspect`: something else speaks against the endpoint too."""
        result: BoolArray = suspect & (self._answers >= ENOUGH)
        silent = self._draws >= ENOUGH_OF_IDLE
        if spread is not None and silent.any():
            share = _of_pool(spread.shares * silent, spread.pools) / np.maximum(
                _of_pool(spread.shares, spread.pools), np.finfo(np.float64).tiny
            )
            result |= silent & (share <= _MOST) & (now - self._failed_at >= EJECTED_SECONDS)
        return result


def _of_pool(values: FloatArray | IntArray, pools: IntArray) -> FloatArray:
    """Return the sum over each endpoint's pool."""
    sums = np.bincount(pools, weights=values, minlength=1).astype(np.float64)
    result: FloatArray = sums[pools]
    return result
