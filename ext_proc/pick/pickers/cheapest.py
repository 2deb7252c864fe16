"""The cheapest, in the order of cost; equal ones in the order of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.pickers.scored import ScoredCandidates, smallest

if TYPE_CHECKING:
    from ext_proc.pick.context import TickContext


def first(scored: ScoredCandidates, _context: TickContext, count: int) -> list[int]:
    """Return up to `count` positions, best first."""
    order: list[int] = smallest(scored.cost, count).tolist()
    return order
