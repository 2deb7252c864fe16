"""What a picker chooses from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question

_PARTITION_FROM: Final = 128
"""From this many candidates on, not to sort all of them is faster."""
_FEW: Final = 4
"""So many are found fastest one after the other."""


class Offer(NamedTuple):
    """One prompt, with what it costs on each candidate."""

    question: Question
    forecast: Forecast
    cost: NDArray[np.float64]
    apart_share: float = 0.0
    """Share of the pool's requests that other workers send without telling where, 0 to 1."""
    request_seconds: float = 0.0
    """What one request in flight adds to the cost."""
    given: NDArray[np.float64] | None = None
    """Requests that each candidate got lately; None: nothing is known of that."""
    placed: NDArray[np.float64] | None = None
    """New prefixes among them, by shares of prompts; None: other workers place new prefixes too."""


def smallest(column: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the `count` smallest, ascending; equal ones in the order of position."""
    if column.size <= max(_PARTITION_FROM, 2 * count):
        return column.argsort(kind="stable")[:count]
    if count <= _FEW:
        left, found = column.copy(), np.empty(count, np.intp)
        for place in range(count):
            found[place] = lowest = left.argmin()
            left[lowest] = np.inf
        return found
    # All that are as small as the largest of them: which of those that are equal is said by their position.
    chosen = np.flatnonzero(column <= np.partition(column, count - 1)[count - 1])
    return chosen[column[chosen].argsort(kind="stable")[:count]]
