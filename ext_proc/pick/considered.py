"""Which endpoints a pick compared, with the parts of their cost: what explains it afterwards.

Few picks are ever looked at, so a pick keeps some numbers, and words are made of them when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, overload

import numpy as np

from ext_proc.pick.pick import Considered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast

EXPLAINED: Final = 8
"""Endpoints that the span of a traced request tells of."""


class Comparison(Sequence[Considered]):
    """The endpoints of a pick, best first. Holds a few numbers of each, not the pool's columns."""

    __slots__ = ("_addresses", "_told", "_values")

    def __init__(self, addresses: Sequence[str], values: tuple[NDArray[np.generic], ...]) -> None:
        """`values` are columns: cost, queue, load, cold, fixed and matched."""
        self._addresses = addresses
        self._values = values
        self._told: tuple[Considered, ...] | None = None

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[Considered]:
        return iter(self._all())

    @overload
    def __getitem__(self, place: int) -> Considered: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Considered, ...]: ...
    def __getitem__(self, place: int | slice) -> Considered | tuple[Considered, ...]:
        """Return one endpoint, or several."""
        return self._all()[place]

    def _all(self) -> tuple[Considered, ...]:
        if self._told is None:
            columns = (column.tolist() for column in self._values)
            self._told = tuple(
                Considered(address, cost, queue + load, cold, fixed, matched)
                for address, cost, queue, load, cold, fixed, matched in zip(
                    self._addresses, *columns, strict=True
                )
            )
        return self._told


def comparison(
    addresses: Sequence[str],
    order: list[int],
    cost: NDArray[np.float64],
    forecast: Forecast,
    fixed: NDArray[np.float64],
    *,
    explain: bool,
) -> Comparison:
    """Tell of the positions of a pick, best first; to explain it, of the next cheapest ones too.

    `fixed` is the part of the cost that is the same for every prompt.
    """
    if explain and len(order) < EXPLAINED:
        cheapest = cost.argsort(kind="stable")[:EXPLAINED].tolist()
        order = (order + [position for position in cheapest if position not in order])[:EXPLAINED]
    places = np.array(order)
    values = tuple(
        column.take(places)
        for column in (cost, forecast.queue, forecast.load, forecast.cold, fixed, forecast.matched)
    )
    return Comparison([addresses[position] for position in order], values)
