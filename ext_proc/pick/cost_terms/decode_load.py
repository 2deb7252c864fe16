"""What the requests in flight add to each other: every step of an engine decodes all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.cost_terms.term import CostTerm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest


def bind(_context: TickContext) -> CostTerm:
    """Bind to a tick."""
    return CostTerm(by_prompt=_seconds)


def _seconds(_request: PickRequest, forecast: Forecast) -> NDArray[np.float64]:
    return forecast.load
