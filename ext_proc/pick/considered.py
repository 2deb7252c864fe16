"""Which endpoints a pick compared, with the parts of their cost: what explains it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick.pick import Considered

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast

EXPLAINED: Final = 8
"""Endpoints that the span of a traced request tells of."""


def comparison(
    addresses: Sequence[str],
    order: list[int],
    cost: NDArray[np.float64],
    forecast: Forecast,
    fixed: NDArray[np.float64],
    *,
    explain: bool,
) -> tuple[Considered, ...]:
    """Tell of the positions of a pick, best first; to explain it, of the next cheapest ones too.

    `fixed` is the part of the cost that is the same for every prompt.
    """
    if explain and len(order) < EXPLAINED:
        cheapest = cost.argsort(kind="stable")[:EXPLAINED].tolist()
        order = (order + [position for position in cheapest if position not in order])[:EXPLAINED]
    matched, cold, _, queue, load = forecast
    return tuple(
        [
            Considered(
                addresses[position],
                cost.item(position),
                queue.item(position) + load.item(position),
                cold.item(position),
                fixed.item(position),
                matched.item(position),
            )
            for position in order
        ]
    )
