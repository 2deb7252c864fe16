"""Which endpoints have loaded a LoRA adapter, as far as our own requests tell. Bounded.

Engines load an adapter at its first request and keep some of them; how many, and which go first, they do not
say. So an endpoint is taken to have one as long as we have sent something for it lately. Like cold prefill,
loading is paid once and used by all later requests: its price falls with what it is asked for (`demand`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.demand import LOOK_BACK, Demand, uses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MOST: Final = 256
"""Adapters that are remembered for a pool: those asked for last."""


class _Adapter:
    __slots__ = ("demand", "earlier", "sent_at")

    def __init__(self, size: int, window_seconds: float) -> None:
        self.sent_at: NDArray[np.float64] = np.full(size, -np.inf)
        self.demand = Demand(window_seconds)
        self.earlier = Demand(window_seconds)
        """Of all requests, those before the adapter's time began."""


class Adapters:
    """By adapter and endpoint, in the pool's order, when something was last sent there for it."""

    def __init__(self, size: int, window_seconds: float) -> None:
        self._size = size
        self._window_seconds = window_seconds
        self._by_name: OrderedDict[str, _Adapter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_name)

    def carried_to(self, sources: Sequence[int | None]) -> Adapters:
        """Return the same for other endpoints; `sources` names each one's row here, None for new ones."""
        moved = Adapters(len(sources), self._window_seconds)
        for name, before in self._by_name.items():
            moved._by_name[name] = entry = _Adapter(len(sources), self._window_seconds)
            entry.demand, entry.earlier = before.demand, before.earlier
            for row, source in enumerate(sources):
                if source is not None:
                    entry.sent_at[row] = before.sent_at[source]
        return moved

    def note(self, adapter: str, row: int, now: float, total: float = 0.0) -> None:
        """Note that a request for an adapter goes to an endpoint; `total` are all requests, this included."""
        entry = self._by_name.get(adapter)
        if entry is None:
            entry = self._by_name[adapter] = _Adapter(self._size, self._window_seconds)
            if len(self._by_name) > MOST:
                self._by_name.popitem(last=False)
        else:
            self._by_name.move_to_end(adapter)
        entry.sent_at[row] = now
        entry.earlier.raise_to(total - 1.0 - LOOK_BACK * self._size * entry.demand.at(now), now)
        entry.demand.add(now)

    def forget(self, row: int) -> None:
        """Take an endpoint to have none."""
        for entry in self._by_name.values():
            entry.sent_at[row] = -np.inf

    def missing(self, adapter: str, since: float) -> NDArray[np.bool_] | None:
        """Return which endpoints got nothing for an adapter since then; None when that holds for all."""
        entry = self._by_name.get(adapter)
        if entry is None:
            return None
        lacks: NDArray[np.bool_] = entry.sent_at < since
        return None if lacks.all() else lacks

    def uses(self, adapter: str, total: float, holders_share: float, endpoints: int, now: float) -> float:
        """Return how many later requests would share the price of loading it once more, see `demand`."""
        entry = self._by_name.get(adapter)
        if entry is None:
            return 0.0
        since = total - entry.earlier.at(now)
        # Less than a request an endpoint tells nothing, as with prefixes.
        return 0.0 if since < endpoints else uses(entry.demand.at(now), since, holders_share, endpoints)
