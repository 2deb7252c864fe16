"""Answers that are bad: distrust_seconds * max(1 - trust_ratio, error_ratio). Unknown is no evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.cost_terms.term import CostTerm

if TYPE_CHECKING:
    from ext_proc.pick.context import TickContext


def bind(context: TickContext) -> CostTerm:
    """Bind to a tick."""
    trust, errors = context.candidates.signal("trust_ratio"), context.candidates.signal("error_ratio")
    doubt = np.clip(np.nan_to_num(np.fmax(1.0 - trust, errors)), 0.0, 1.0)
    return CostTerm(context.settings.cost.distrust_seconds * doubt)
