"""The meeting point of the two services: fleet views go down, traffic reports go up.

In one process both use the same `FleetStore`; apart, ext_proc's follower fills one of its own from
xds_server's stream. Either way there is one source of truth behind one interface.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from fleet.columns import MOST_PREFILL_SECONDS
from fleet.endpoint import Membership
from fleet.signals import SignalTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fleet.ranks import PoolRanks

_NO_SIGNALS: Final = SignalTable.unknown(())


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at one moment.

    Raises:
        ValueError: the signals are not those of the membership's endpoints, in their order.
    """

    membership: Membership = field(default_factory=Membership)
    weights: Mapping[str, int] = field(default_factory=dict)
    """Address to the weight that EDS carries."""
    signals: SignalTable = _NO_SIGNALS
    """Of the membership's endpoints, in their order; all unknown by default."""
    in_flight_elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Address to the requests in flight by other ext_proc workers."""
    prefill_elsewhere: Mapping[str, float] = field(default_factory=dict)
    """Address to the seconds of prefill that others have sent so far; only its growth has a meaning."""
    sampling_ratio_floor: float = 0.0
    """At least this share of the requests is traced, whatever the settings say, 0 to 1."""
    overridden: frozenset[str] = frozenset()
    """Addresses whose weight an operator has set: picks follow it too."""
    ranks: Mapping[str, PoolRanks] = field(default_factory=dict)
    """By name, the pools whose picks choose among data-parallel ranks."""

    def __post_init__(self) -> None:
        addresses = self.membership.addresses
        if self.signals is _NO_SIGNALS:
            object.__setattr__(self, "signals", SignalTable.unknown(addresses))
        elif self.signals.addresses is not addresses and self.signals.addresses != addresses:
            raise ValueError("signals of other endpoints, or in another order, than the membership's")


@dataclass(frozen=True, slots=True)
class Traffic:
    """One ext_proc worker's requests to an endpoint that it picked."""

    address: str
    in_flight: int
    started_total: int
    finished_total: int
    duration_p99_seconds: float | None = None
    """End to end, over the worker's window; None without a finished request."""
    oldest_in_flight_seconds: float | None = None
    """Age of the oldest request in flight; None without one."""
    prefill_seconds_total: float | None = None
    """Of all picks so far, as estimated; None: unknown."""


class Missed(NamedTuple):
    """A request that the first endpoint of its pick did not answer successfully, so it is not warm for it."""

    prompt: int
    """64-bit digest of the prompt's blocks, by which workers find what they have shared of it."""
    picked: str
    served: str
    """Address of the endpoint that answered successfully in its place; empty: the client got an error."""
    serial: int = 0
    """Of the pick, for the worker that made it; 0: none was sent."""
    request: int = 0
    """64-bit digest of the whole request: repetitions go elsewhere; 0: none was sent."""


class Placement(NamedTuple):
    """The endpoint of a name: of stored state, or of a hard session."""

    name: int
    """64-bit digest; never 0."""
    endpoint: str


class FleetStore:
    """Holds the newest view and every worker's newest traffic; wakes the tasks that wait for a change.

    Missed requests and placements pass through to the listeners and are not kept.

    Single-threaded: all calls come from one event loop.
    """

    def __init__(self) -> None:
        self.view: FleetView | None = None
        """The newest view; None until the first full sync. Only `publish` sets it."""
        self._changed = asyncio.Event()
        self._traffic: dict[str, dict[str, Traffic]] = {}
        self._in_flight: dict[str, int] = {}
        """Updated with each report, because every worker reads it in every tick."""
        self._prefill: dict[str, float] = {}
        """Seconds of prefill that all workers have sent, since each one's first report: it never falls."""
        self._prefill_by: dict[str, dict[str, float]] = {}
        """The part of each worker."""
        self._on_missed: list[Callable[[Missed], None]] = []
        self._on_placed: list[Callable[[Placement], None]] = []

    def publish(self, view: FleetView) -> None:
        """Swap the view and wake every task in `changed`."""
        if self.view is None or view.membership is not self.view.membership:
            members = view.membership.by_address
            for sums in (self._prefill, *self._prefill_by.values()):
                for address in sums.keys() - members.keys():
                    del sums[address]
        self.view = view
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, than: FleetView | None = None) -> FleetView:
        """Return the newest view once it is not `than`."""
        while self.view is None or self.view is than:
            await self._changed.wait()
        return self.view

    def on_missed(self, listener: Callable[[Missed], None]) -> None:
        """Call `listener` with each missed request from now on; it must not raise."""
        self._on_missed.append(listener)

    def publish_missed(self, missed: Missed) -> None:
        """Call every listener."""
        for listener in self._on_missed:
            listener(missed)

    def on_placed(self, listener: Callable[[Placement], None]) -> None:
        """Call `listener` with each placement from now on; it must not raise."""
        self._on_placed.append(listener)

    def publish_placed(self, placement: Placement) -> None:
        """Call every listener."""
        for listener in self._on_placed:
            listener(placement)

    def report(self, worker: str, traffic: Iterable[Traffic]) -> None:
        """Replace the former report of `worker`."""
        before = self._traffic.pop(worker, {})
        _move(self._in_flight, before, -1)
        self._traffic[worker] = by_address = {entry.address: entry for entry in traffic}
        _move(self._in_flight, by_address, +1)
        own = self._prefill_by.setdefault(worker, {})
        for address, entry in by_address.items():
            total, earlier = entry.prefill_seconds_total, before.get(address)
            last = None if earlier is None else earlier.prefill_seconds_total
            if earlier is None and before:
                last = 0.0  # Its first pick there.
            if total is not None and last is not None and total > last:
                grown = min(total - last, MOST_PREFILL_SECONDS)
                own[address] = own.get(address, 0.0) + grown
                self._prefill[address] = self._prefill.get(address, 0.0) + grown

    def forget_worker(self, worker: str) -> None:
        """Drop a worker's report: its stream has ended, so its requests have too."""
        _move(self._in_flight, self._traffic.pop(worker, {}), -1)
        self._prefill_by.pop(worker, None)

    def in_flight(self, except_worker: str = "") -> dict[str, int]:
        """Return address to requests in flight of all workers but `except_worker`; 0 has no entry."""
        totals = dict(self._in_flight)
        _move(totals, self._traffic.get(except_worker, {}), -1)
        return totals

    def prefill(self, except_worker: str = "") -> dict[str, float]:
        """Return address to seconds of prefill that all workers but `except_worker` have sent so far."""
        own = self._prefill_by.get(except_worker, {})
        return {address: total - own.get(address, 0.0) for address, total in self._prefill.items()}

    def traffic(self) -> Mapping[str, Mapping[str, Traffic]]:
        """Worker to address to traffic."""
        return self._traffic


def _move(totals: dict[str, int], traffic: Mapping[str, Traffic], sign: int) -> None:
    """Add a worker's requests in flight to the sums, or take them off."""
    for address, entry in traffic.items():
        if entry.in_flight:
            left = totals.get(address, 0) + sign * entry.in_flight
            if left:
                totals[address] = left
            else:
                del totals[address]
