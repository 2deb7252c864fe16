"""What a request takes longer than usual on an endpoint, see `ext_proc.pick.pace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.cost_terms.term import CostTerm

if TYPE_CHECKING:
    from ext_proc.pick.context import TickContext


def bind(context: TickContext) -> CostTerm:
    """Bind to a tick."""
    if context.paces is None:
        return CostTerm()
    return CostTerm(context.paces.slow_seconds[context.candidates.rows])
