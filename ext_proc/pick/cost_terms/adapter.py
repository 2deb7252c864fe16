"""Loading a LoRA adapter, where nothing was sent for it lately: adapter_seconds / (1 + uses)."""

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
    cost, candidates = context.settings.cost, context.candidates
    if not cost.adapter_seconds:
        return CostTerm()
    shares = candidates.shares()

    def seconds(request: PickRequest, _forecast: Forecast) -> NDArray[np.float64] | None:
        if not request.adapter:
            return None
        missing = context.adapters.missing(request.adapter, request.now - cost.adapter_memory_seconds)
        if missing is None:
            return None
        lacks = missing[candidates.rows]
        uses = context.adapters.uses(
            request.adapter,
            context.demand.at(request.now),
            float(shares[~lacks].sum()),
            shares.size,
            request.now,
        )
        return np.where(lacks, cost.adapter_seconds / (1.0 + uses), 0.0)

    return CostTerm(by_prompt=seconds)
