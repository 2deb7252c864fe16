"""What a picker chooses from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest

_PARTITION_FROM: Final = 128
"""From this many candidates on, not to sort all of them is faster."""
_FEW: Final = 4
"""So many are found fastest one after the other."""


class ScoredCandidates(NamedTuple):
    """One prompt, with its forecast and its cost on each candidate."""

    request: PickRequest
    forecast: Forecast
    cost: NDArray[np.float64]
    """In seconds."""


def smallest(column: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the `count` smallest, ascending; equal ones in the order of position."""
    if column.size <= max(_PARTITION_FROM, 2 * count):
        return column.argsort(kind="stable")[:count]
    if count <= _FEW:
        left, lowest = column.copy(), np.empty(count, np.intp)
        for place in range(count):
            lowest[place] = position = left.argmin()
            left[position] = np.inf
        return lowest
    # All that are as small as the largest of them; positions decide between equals.
    chosen = np.flatnonzero(column <= np.partition(column, count - 1)[count - 1])
    return chosen[column[chosen].argsort(kind="stable")[:count]]
