"""What a picker chooses from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question

_PARTITION_FROM: Final = 128
"""From this many candidates on, partial sorting is the faster one."""


class Offer(NamedTuple):
    """One prompt, with what it costs on each candidate."""

    question: Question
    forecast: Forecast
    cost: NDArray[np.float64]
    apart_share: float = 0.0
    """Share of the pool's requests that other workers send without telling where, 0 to 1."""


def smallest(column: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Positions of the `count` smallest, ascending; equal ones in the order of position."""
    if column.size <= max(_PARTITION_FROM, 2 * count):
        return column.argsort(kind="stable")[:count]
    chosen = np.sort(np.argpartition(column, count)[:count])
    return chosen[column[chosen].argsort(kind="stable")]
