"""Every pick strategy by its name in the settings. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ext_proc.pick.cost import CostPicker

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.pick.backlog import Backlog
    from ext_proc.pick.candidates import Candidates
    from ext_proc.pick.pick import Picker
    from fleet.settings.picks import PickSettings

PICKERS: Final[dict[str, Callable[[Candidates, Backlog, PickSettings, float], Picker]]] = {
    "cost": CostPicker,
}
"""Each is made once a tick, from the pool's candidates and backlog, the settings and the tick's time."""
