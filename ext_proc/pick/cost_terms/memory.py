"""Little memory left, of the kind that `weights.memory` chooses.

memory_pressure_seconds * clip((used - from) / (full - from), 0, 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.cost_terms.term import CostTerm
from fleet.columns import fill_unknown

if TYPE_CHECKING:
    from ext_proc.pick.context import TickContext


def bind(context: TickContext) -> CostTerm:
    """Bind to a tick. Unknown counts as the known peers' mean."""
    candidates, cost = context.candidates, context.settings.cost
    used = fill_unknown(candidates.signal("memory_used_ratio"), 0.0)
    start, full = cost.memory_pressure_from, cost.memory_pressure_full
    if full <= start:
        return CostTerm(np.where(used >= full, cost.memory_pressure_seconds, 0.0))
    return CostTerm(cost.memory_pressure_seconds * np.clip((used - start) / (full - start), 0, 1))
