"""Which endpoints have loaded a LoRA adapter, by our own requests. Bounded.

Engines load an adapter at its first request and keep some of them; they do not report which. So an endpoint
counts as having an adapter for some time after each request of ours for it. Like cold prefill, loading is
paid once and used by all later requests: its price falls with the demand for the adapter (`demand`).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ext_proc.pick.demand import LOOK_BACK, Demand, uses
from ext_proc.pick.rows import moved

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST: Final = 256
"""Adapters of a pool that are remembered, the most recent ones."""


class _Adapter(NamedTuple):
    sent_at: NDArray[np.float64]
    demand: Demand
    earlier_demand: Demand
    """Of all requests, those before the adapter's time began."""


class Adapters:
    """The time of the last request by adapter and endpoint, in the pool's order."""

    def __init__(self, size: int, window_seconds: float) -> None:
        self._size = size
        self._window_seconds = window_seconds
        self._by_name: OrderedDict[str, _Adapter] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_name)

    def moved_to(self, sources: NDArray[np.intp]) -> Adapters:
        """Return the same for other endpoints, see `rows.moved`."""
        other = Adapters(sources.size, self._window_seconds)
        for name, entry in self._by_name.items():
            other._by_name[name] = _Adapter(
                moved(entry.sent_at, sources, -np.inf), entry.demand, entry.earlier_demand
            )
        return other

    def note(self, adapter: str, row: int, now: float, total: float) -> None:
        """Note that a request for an adapter goes to an endpoint; `total` are all requests, this included."""
        entry = self._by_name.get(adapter)
        if entry is None:
            entry = self._by_name[adapter] = _Adapter(
                np.full(self._size, -np.inf), Demand(self._window_seconds), Demand(self._window_seconds)
            )
            if len(self._by_name) > MOST:
                self._by_name.popitem(last=False)
        else:
            self._by_name.move_to_end(adapter)
        entry.sent_at[row] = now
        entry.earlier_demand.raise_to(total - 1.0 - LOOK_BACK * self._size * entry.demand.at(now), now)
        entry.demand.add(now)

    def forget(self, row: int) -> None:
        """Count an endpoint as having no adapter."""
        for entry in self._by_name.values():
            entry.sent_at[row] = -np.inf

    def missing(self, adapter: str, since: float) -> NDArray[np.bool_] | None:
        """Return which endpoints got no request for an adapter since then; None if none did."""
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
        since = total - entry.earlier_demand.at(now)
        # Less than one request an endpoint proves nothing, as with prefixes.
        return 0.0 if since < endpoints else uses(entry.demand.at(now), since, holders_share, endpoints)
