"""Which endpoints a pick compared, with the parts of their cost: what explains it afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ext_proc.pick.pick import Considered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

EXPLAINED: Final = 8
"""Endpoints that the span of a traced request tells of."""


class CostParts(NamedTuple):
    """One number a candidate each, in seconds but for the blocks."""

    cost: NDArray[np.float64]
    wait: NDArray[np.float64]
    cold: NDArray[np.float64]
    penalty: NDArray[np.float64]
    matched_blocks: NDArray[np.float64]


def considered(
    addresses: Sequence[str], order: list[int], parts: CostParts, *, explain: bool
) -> tuple[Considered, ...]:
    """Tell of the positions of a pick, best first; to explain it, of the next cheapest ones too."""
    if explain and len(order) < EXPLAINED:
        cheapest = parts.cost.argsort(kind="stable")[:EXPLAINED].tolist()
        order = (order + [position for position in cheapest if position not in order])[:EXPLAINED]
    table = np.array(parts)[:, order].T.tolist() if explain else _rows(parts, order)
    return tuple(
        Considered(addresses[position], cost, wait, cold, penalty, int(held))
        for position, (cost, wait, cold, penalty, held) in zip(order, table, strict=True)
    )


def _rows(parts: CostParts, order: list[int]) -> list[tuple[float, ...]]:
    """For the few of a pick, single numbers are cheaper than arrays."""
    return [tuple(column.item(position) for column in parts) for position in order]
