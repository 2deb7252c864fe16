"""The endpoints that a pick compared, with the parts of their cost: its explanation, made when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ext_proc.pick.result import Considered

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pickers import ScoredCandidates

EXPLAINED: Final = 8
"""Endpoints that the span of a traced request lists."""
_MOST_KEPT: Final = 128
"""Candidates up to which the columns of a pick are kept, 8 KB; of more, only the numbers that are named."""


class _Columns(Sequence[Considered]):
    """The positions of a pick in its columns. Nothing of the prompt is there, because decisions are kept."""

    __slots__ = ("addresses", "cost", "fixed", "forecast", "order", "terms")

    def __init__(
        self,
        addresses: Sequence[str],
        order: list[int],
        forecast: Forecast,
        cost: NDArray[np.float64],
        fixed: NDArray[np.float64],
        terms: Mapping[str, NDArray[np.float64]] | None,
    ) -> None:
        self.addresses, self.order, self.forecast = addresses, order, forecast
        self.cost, self.fixed, self.terms = cost, fixed, terms

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, rank: Any) -> Any:
        place, forecast, terms = self.order[rank], self.forecast, self.terms
        cold = forecast.cold.item(place)
        return Considered(
            self.addresses[place],
            self.cost.item(place),
            forecast.queue.item(place) + forecast.load.item(place),
            cold,
            forecast.priced.item(place) - cold,
            self.fixed.item(place),
            forecast.matched.item(place),
            None if terms is None else {name: part.item(place) for name, part in terms.items()},
        )


def comparison(
    addresses: Sequence[str],
    order: list[int],
    scored: ScoredCandidates,
    fixed: NDArray[np.float64],
    terms: Mapping[str, NDArray[np.float64]] | None = None,
) -> Sequence[Considered]:
    """Describe the positions of a pick, best first; for a traced request also the next cheapest ones.

    `fixed` is the part of the cost that is the same for every prompt; `terms` are the parts by cost term.
    """
    cost = scored.cost
    if scored.request.explain and len(order) < EXPLAINED:
        cheapest = cost.argsort(kind="stable")[:EXPLAINED].tolist()
        order = (order + [position for position in cheapest if position not in order])[:EXPLAINED]
    compared = _Columns(addresses, order, scored.forecast, cost, fixed, terms)
    return compared if cost.size <= _MOST_KEPT else tuple(compared)
