"""The meeting point of the two services: fleet views go down, traffic reports go up.

In one process both use the same `FleetStore`; apart, ext_proc's follower fills one of its own from
xds_server's stream. Either way there is one source of truth behind one interface.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.endpoint import Membership

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fleet.load import Load


@dataclass(frozen=True, slots=True)
class FleetView:
    """What is known of the fleet at one moment."""

    membership: Membership = field(default_factory=Membership)
    weights: Mapping[str, int] = field(default_factory=dict)
    """Address to the weight that EDS carries."""
    loads: Mapping[str, Load] = field(default_factory=dict)
    """Address to load; `observed_at` is on this process's monotonic clock."""
    in_flight_elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Address to the requests in flight by other ext_proc workers."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one ext_proc worker saw of an endpoint: requests it picked the endpoint for."""

    address: str
    in_flight: int
    started_total: int
    finished_total: int
    duration_p99_seconds: float | None = None
    """End to end, over the worker's window; None without a finished request."""


class FleetStore:
    """Holds the newest view and every worker's newest traffic; wakes those who wait for a change.

    Single-threaded: all calls come from one event loop.
    """

    def __init__(self) -> None:
        self._view: FleetView | None = None
        self._changed = asyncio.Event()
        self._traffic: dict[str, dict[str, Traffic]] = {}

    @property
    def view(self) -> FleetView | None:
        """The newest view; None until the first full sync."""
        return self._view

    def publish(self, view: FleetView) -> None:
        """Swap the view and wake everyone in `changed`."""
        self._view = view
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, than: FleetView | None = None) -> FleetView:
        """Return the newest view once it is another one than `than`."""
        while self._view is None or self._view is than:
            await self._changed.wait()
        return self._view

    def report(self, worker: str, traffic: Iterable[Traffic]) -> None:
        """Replace what `worker` reported before."""
        self._traffic[worker] = {entry.address: entry for entry in traffic}

    def forget_worker(self, worker: str) -> None:
        """Drop a worker's report: its stream has ended, so its requests have too."""
        self._traffic.pop(worker, None)

    def in_flight(self, except_worker: str = "") -> dict[str, int]:
        """Address to requests in flight, summed over the workers, without one if named."""
        totals: dict[str, int] = {}
        for worker, seen in self._traffic.items():
            if worker != except_worker:
                for address, traffic in seen.items():
                    totals[address] = totals.get(address, 0) + traffic.in_flight
        return totals

    def traffic(self) -> Mapping[str, Mapping[str, Traffic]]:
        """Worker to address to traffic."""
        return self._traffic
