"""One pool as picks see it: its shape, what was sent there, and the strategy bound to this tick's loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.backlog import Backlog
from ext_proc.pick.candidates import Candidates, PoolShape
from ext_proc.pick.strategies import PICKERS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.pick.candidates import LoadColumns
    from ext_proc.pick.pick import Picker
    from fleet.endpoint import Pool
    from fleet.settings.picks import PickSettings


class PoolState:
    """Rebuilt in parts: shape per membership, columns per tick, a picker at its first use in a tick."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.shape = PoolShape.of(pool)
        self.backlog = Backlog(self.shape.addresses)
        self._columns: LoadColumns | None = None
        self._settings: PickSettings | None = None
        self._refreshed_at = 0.0
        self._pickers: dict[str, Picker] = {}

    def moved_to(self, pool: Pool, in_flight: Callable[[str], int]) -> PoolState:
        """Return the state for other endpoints; who stays keeps what was sent there."""
        moved = PoolState(pool)
        moved.backlog = self.backlog.carried_to(moved.shape.addresses, in_flight)
        return moved

    def refresh(self, columns: LoadColumns, settings: PickSettings, now: float) -> None:
        """Take over a tick's loads."""
        self._columns, self._settings, self._refreshed_at = columns, settings, now
        self.backlog.learn_rates(columns.signal("prefill_tokens_per_second"), now)
        self._pickers.clear()

    def picker(self, model: str) -> Picker | None:
        """Return the strategy over the endpoints that serve `model`; None when nobody does."""
        # Models that no endpoint names share one entry, so that clients cannot grow the table.
        key = model if self.shape.names(model) else ""
        held = self._pickers.get(key)
        if held is None and self._columns is not None and self._settings is not None:
            candidates = Candidates.of(self.shape, self._columns, key)
            if candidates is not None:
                make = PICKERS[self._settings.strategy]
                held = make(candidates, self.backlog, self._settings, self._refreshed_at)
                self._pickers[key] = held
        return held
