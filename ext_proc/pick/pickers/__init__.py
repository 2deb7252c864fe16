"""Every picker by its name in the settings. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick.pickers import cheapest, rendezvous

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.pickers.scored import ScoredCandidates

PICKERS: Final[dict[str, Callable[[ScoredCandidates, TickContext, int], list[int]]]] = {
    "rendezvous": rendezvous.first,
    "cheapest": cheapest.first,
}
"""Each returns up to so many positions, best first."""
