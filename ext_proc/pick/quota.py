"""The share that an operator has set: picks of an overridden endpoint follow its weight. Pure.

Where a weight is computed, it is about load, which picks look at themselves. An operator's weight is about
something that nobody measures, so it binds picks too. Each pick of a pool credits every overridden endpoint
that could have been picked with its share of their weights, and debits the one that was:

    credit += weight / sum of weights  [- 1 if picked]

Below half a request of credit an endpoint is closed: others go first, whichever is warm. Credit beyond that
makes it cheaper by `CREDIT_SECONDS` a request, so that requests come that lose least by it. So its share of
the picks is its share of the weights, over some tens of requests, at any rate. Both credit and debt have a
bound: an endpoint that served while others were away is not left out for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.candidates import Candidates

LEAST_CREDIT: Final = 0.5
MOST_CREDIT: Final = 32.0
"""Requests of credit, and of debt."""
CREDIT_SECONDS: Final = 0.1


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
        valid = weights[~np.isnan(weights)]
        weights = np.where(np.isnan(weights), valid.mean() if valid.size else 1.0, weights)
        stays = overridden & self._overridden & (weights == self._weights)
        self._credit = np.where(stays, self._credit, 0.0)
        self._overridden, self._weights = overridden, weights
        self.active = bool(overridden.any())

    def note(self, candidates: Candidates, picked: int) -> None:
        """Note a pick of a row among these."""
        if not self.active:
            return
        rows, tried, weights = candidates.rows, candidates.untrusted, self._weights
        total = weights[rows].sum()
        self._credit[rows] += weights[rows] / total
        # Of those that are only tried the others' shares know nothing.
        self._credit[tried] += weights[tried] / (total + weights[tried])
        self._credit[picked] -= 1.0
        np.clip(self._credit, -MOST_CREDIT, MOST_CREDIT, out=self._credit)

    def closed(self, rows: NDArray[np.intp] | slice) -> NDArray[np.bool_]:
        """Return which rows have had their share: others go first."""
        result: NDArray[np.bool_] = self._overridden[rows] & (self._credit[rows] < LEAST_CREDIT)
        return result

    def seconds(self, rows: NDArray[np.intp] | slice) -> NDArray[np.float64]:
        """Return what each row costs less for its credit, 0 or below."""
        credit = np.maximum(self._credit[rows] - LEAST_CREDIT, 0.0)
        result: NDArray[np.float64] = np.where(self._overridden[rows], -CREDIT_SECONDS * credit, 0.0)
        return result
