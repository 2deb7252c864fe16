"""The share that an operator has set: picks of an overridden endpoint follow its weight. Pure.

Where a weight is computed, it is about load, which picks look at themselves. An operator's weight is about
something that nobody measures, so it binds picks too. Each pick of a pool credits every overridden endpoint
that could have been picked with its share of their weights, and debits the one that was:

    credit += weight / sum of weights  [- 1 if picked]

Below half a request of credit an endpoint is closed: others go first, whoever is warm. What it is owed beyond
makes it cheaper by `OWED_SECONDS` a request, so that those requests come that lose least by it. So its share
of the picks is its share of the weights, over some tens of requests, at any rate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_CREDIT: Final = 0.5
MOST_CREDIT: Final = 32.0
"""Requests that may be owed: an endpoint that was away does not catch up with more."""
OWED_SECONDS: Final = 0.1
CLOSED_SECONDS: Final = 1800.0
"""Of cost: more than any prompt takes, less than where that very prompt was refused."""


class Quota:
    """Columns over a pool's endpoints, in the pool's order."""

    def __init__(self, size: int) -> None:
        self._overridden: NDArray[np.bool_] = np.zeros(size, np.bool_)
        self._weights: NDArray[np.float64] = np.ones(size)
        self._credit: NDArray[np.float64] = np.zeros(size)
        self.active = False
        """Whether anybody is overridden."""

    def moved_from(self, other: Quota, sources: list[int | None]) -> None:
        """Take over what is remembered of those who stay; `sources` are their rows there."""
        for row, source in enumerate(sources):
            if source is not None:
                self._overridden[row] = other._overridden[source]
                self._weights[row] = other._weights[source]
                self._credit[row] = other._credit[source]

    def follow(self, overridden: NDArray[np.bool_], weights: NDArray[np.float64]) -> None:
        """Take over who is overridden, and the weights in force, NaN where there is none.

        Another weight begins without credit.
        """
        weights = np.where(weights > 0, weights, np.nan)
        known = weights[~np.isnan(weights)]
        weights = np.where(np.isnan(weights), known.mean() if known.size else 1.0, weights)
        stays = overridden & self._overridden & (weights == self._weights)
        self._credit = np.where(stays, self._credit, 0.0)
        self._overridden, self._weights = overridden, weights
        self.active = bool(overridden.any())

    def note(self, rows: NDArray[np.intp], picked: int) -> None:
        """Note a pick; `rows` are those who could have been picked."""
        if not self.active:
            return
        self._credit[rows] += self._weights[rows] / self._weights[rows].sum()
        self._credit[picked] -= 1.0
        np.minimum(self._credit, MOST_CREDIT, out=self._credit)

    def seconds(self, rows: NDArray[np.intp] | slice) -> NDArray[np.float64]:
        """Return what speaks against a pick of each row, below 0 for it."""
        credit = self._credit[rows]
        price = np.where(credit < LEAST_CREDIT, CLOSED_SECONDS, -OWED_SECONDS * (credit - LEAST_CREDIT))
        result: NDArray[np.float64] = np.where(self._overridden[rows], price, 0.0)
        return result
