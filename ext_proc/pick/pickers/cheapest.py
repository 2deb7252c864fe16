"""The cheapest, in the order of cost; equal ones in the order of the pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.pickers.offer import Offer, smallest

if TYPE_CHECKING:
    from ext_proc.pick.candidates import Candidates


def first(offer: Offer, _candidates: Candidates, count: int) -> list[int]:
    """Return so many positions, best first."""
    order: list[int] = smallest(offer.cost, count).tolist()
    return order
