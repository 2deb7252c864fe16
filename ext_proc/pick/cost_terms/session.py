"""The session's last endpoint costs bonus_seconds less: it keeps the session as long as that is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.cost_terms.term import CostTerm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest


def bind(context: TickContext) -> CostTerm:
    """Bind to a tick."""
    candidates, bonus = context.candidates, context.settings.sessions.bonus_seconds

    def seconds(request: PickRequest, _forecast: Forecast) -> NDArray[np.float64] | None:
        if not request.session or (place := candidates.place(request.session)) is None:
            return None
        result = np.zeros(len(candidates.addresses))
        result[place] = -bonus
        return result

    return CostTerm(by_prompt=seconds)
