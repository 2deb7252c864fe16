"""The share that an operator has set: picks of an overridden endpoint follow its weight. Pure.

A computed weight represents load, and picks take load into account themselves. An operator's weight
represents something that nobody measures, so it binds picks too. Each pick of a pool credits every overridden
endpoint that could have been picked with its share of their weights, and debits the picked one:

    credit += weight / sum of weights  [- 1 if picked]

Below half a request of credit an endpoint is closed: others go first, warm or not. Credit beyond that makes
it cheaper by `CREDIT_SECONDS` a request, so that it gets the requests that lose least by it. So over some
tens of requests, its share of the picks is its share of the weights. Both credit and debt have a bound: an
endpoint that served while others were away is not left out for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.rows import moved
from fleet.columns import fill_unknown

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
        """Whether an endpoint is overridden."""

    def moved_to(self, sources: NDArray[np.intp]) -> Quota:
        """Return the same for other endpoints, see `rows.moved`."""
        other = Quota(sources.size)
        other._overridden = moved(self._overridden, sources)
        other._weights, other._credit = moved(self._weights, sources, 1.0), moved(self._credit, sources)
        return other

    def follow(self, overridden: NDArray[np.bool_], weights: NDArray[np.float64]) -> None:
        """Take over the overridden endpoints and the weights in force, NaN where there is none.

        A changed weight begins without credit.
        """
        weights = np.where(weights > 0, weights, np.nan)
        weights = fill_unknown(weights, 1.0)
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
        # Endpoints that are only tried are not part of the others' total.
        self._credit[tried] += weights[tried] / (total + weights[tried])
        self._credit[picked] -= 1.0
        np.clip(self._credit, -MOST_CREDIT, MOST_CREDIT, out=self._credit)

    def closed(self, rows: NDArray[np.intp] | slice) -> NDArray[np.bool_]:
        """Return the rows that have had their share: others go first."""
        result: NDArray[np.bool_] = self._overridden[rows] & (self._credit[rows] < LEAST_CREDIT)
        return result

    def seconds(self, rows: NDArray[np.intp] | slice) -> NDArray[np.float64]:
        """Return the seconds that each row's credit adds to its cost, 0 or below."""
        credit = np.maximum(self._credit[rows] - LEAST_CREDIT, 0.0)
        result: NDArray[np.float64] = np.where(self._overridden[rows], -CREDIT_SECONDS * credit, 0.0)
        return result
