"""Who is chosen: every picker by its name in the settings. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick.pickers import cheapest, rendezvous

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.pick.candidates import Candidates
    from ext_proc.pick.pickers.offer import Offer

PICKERS: Final[dict[str, Callable[[Offer, Candidates, int], list[int]]]] = {
    "rendezvous": rendezvous.first,
    "cheapest": cheapest.first,
}
"""Each returns so many positions, best first, and fewer where there are no more."""
