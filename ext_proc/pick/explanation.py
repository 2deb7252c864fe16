"""The endpoints that a pick compared, with the parts of their cost: its explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick.result import Considered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.pickers import ScoredCandidates

EXPLAINED: Final = 8
"""Endpoints that the span of a traced request lists."""


def comparison(
    addresses: Sequence[str],
    order: list[int],
    scored: ScoredCandidates,
    fixed: NDArray[np.float64],
    terms: Mapping[str, NDArray[np.float64]] | None = None,
) -> tuple[Considered, ...]:
    """Describe the positions of a pick, best first; for a traced request also the next cheapest ones.

    `fixed` is the part of the cost that is the same for every prompt; `terms` are the parts by cost term.
    """
    cost = scored.cost
    if scored.request.explain and len(order) < EXPLAINED:
        cheapest = cost.argsort(kind="stable")[:EXPLAINED].tolist()
        order = (order + [position for position in cheapest if position not in order])[:EXPLAINED]
    forecast = scored.forecast
    matched, cold, priced = forecast.matched, forecast.cold, forecast.priced
    queue, load = forecast.queue, forecast.load
    return tuple(
        [
            Considered(
                addresses[position],
                cost.item(position),
                queue.item(position) + load.item(position),
                cold.item(position),
                priced.item(position) - cold.item(position),
                fixed.item(position),
                matched.item(position),
                None if terms is None else {name: part.item(position) for name, part in terms.items()},
            )
            for position in order
        ]
    )
