"""Which endpoints the span of a pick names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.explanation import EXPLAINED, comparison
from ext_proc.pick.forecast import Forecast
from ext_proc.pick.pickers import ScoredCandidates
from ext_proc.pick.request import PickRequest
from ext_proc.pick.result import Considered

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUNT = EXPLAINED + 2
ADDRESSES = [f"10.0.0.{number}:80" for number in range(COUNT)]
COST = np.arange(COUNT, dtype=np.float64)[::-1].copy()


def scored(forecast: Forecast, *, explain: bool) -> ScoredCandidates:
    request = PickRequest(0, (), 0, forecast.matched, 0.0, explain=explain)
    return ScoredCandidates(request, forecast, COST)


def named(order: list[int], *, explain: bool) -> list[int]:
    zeros = np.zeros(COUNT)
    forecast = Forecast(np.zeros(COUNT, np.int64), zeros, zeros, zeros, zeros, 1.0)
    compared = comparison(ADDRESSES, order, scored(forecast, explain=explain), zeros)
    return [ADDRESSES.index(entry.address) for entry in compared]


def test_pick_alone_is_named_unless_explained() -> None:
    assert named([0, 4], explain=False) == [0, 4]


def test_explained_pick_names_the_next_cheapest() -> None:
    """The last endpoint is the cheapest; those that were picked come first and once."""
    assert named([0, 8], explain=True) == [0, 8, 9, 7, 6, 5, 4, 3]


def test_endpoint_is_named_with_the_parts_of_its_cost() -> None:
    def column(value: float) -> NDArray[np.float64]:
        return np.full(COUNT, value)

    forecast = Forecast(np.full(COUNT, 5), column(3.0), column(9.0), column(1.0), column(2.5), price=3.0)
    (compared,) = comparison(ADDRESSES, [4], scored(forecast, explain=False), column(4.0))
    assert compared == Considered(ADDRESSES[4], COST[4], 3.5, 3.0, 6.0, 4.0, 5)


def test_explained_endpoint_is_named_with_its_cost_terms() -> None:
    zeros = np.zeros(COUNT)
    forecast = Forecast(np.zeros(COUNT, np.int64), zeros, zeros, zeros, zeros, 1.0)
    compared = comparison(ADDRESSES, [4], scored(forecast, explain=True), zeros, {"session": COST})
    assert compared[0].terms == {"session": COST[4]}


def test_long_pick_is_named_whole() -> None:
    order = list(range(COUNT))
    assert named(order, explain=True) == order
