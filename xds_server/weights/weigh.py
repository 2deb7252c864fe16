"""Signals to weights: columns, scores, shares, slow start, integers, overrides.

The stabiliser makes the shares: it smooths the scores and multiplies the result by the factors of faults.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from types import MappingProxyType
from typing import TYPE_CHECKING

from xds_server.weights.border import to_weights
from xds_server.weights.columns import Columns
from xds_server.weights.pool import (
    NO_FACTORS,
    NO_OVERRIDES,
    Changes,
    PoolChanges,
    PoolWeights,
    WeightChange,
)
from xds_server.weights.verdict import Tick

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fleet.endpoint import Membership
    from fleet.settings import SignalSettings, WeightSettings
    from fleet.signals import SignalTable
    from xds_server.weights.verdict import SignalReading, Verdict

__all__ = ["Weigher", "WeightChange", "WeightUpdate"]


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """What one computation came to. Always complete, whether anything changed or not."""

    weights: Mapping[str, int]
    """Address to weight in [1, 10000], for every endpoint of the membership."""
    unhealthy: frozenset[str]
    changed: bool
    """Whether a weight, a health mark or the membership differs from the update before."""
    changes: Sequence[WeightChange] = ()
    blind_pools: frozenset[str] = frozenset()
    """Pools in which no endpoint has a fresh signal that counts: their weights turn equal."""


class Weigher:
    """Computes every pool's weights, once a tick. It keeps what stabilising needs, by pool."""

    def __init__(self, settings: WeightSettings, signals: SignalSettings) -> None:
        self._settings = settings
        self._signals = signals
        self._pools: dict[str, PoolWeights] = {}
        self._last = WeightUpdate(MappingProxyType({}), frozenset(), changed=False)
        self._in_use: Mapping[str, int] = self._last.weights
        self._membership: Membership | None = None
        self._addresses: dict[str, tuple[str, ...]] = {}
        """Of `_membership`, by pool."""
        self._tick: Tick | None = None

    def reconfigure(self, settings: WeightSettings, signals: SignalSettings) -> None:
        """Take other settings from the next call on; weights move on from where they are."""
        self._settings = settings
        self._signals = signals
        for pool in self._pools.values():
            pool.reconfigure(settings)

    def restore(
        self, membership: Membership, weights: Mapping[str, int], unhealthy: Collection[str], now: float
    ) -> None:
        """Begin with the weights of the last good state.

        They stay as they are, marks of health included, until `on_answers` names one of the pool's endpoints
        or others are in it; then weights move on from them.
        """
        for pool in membership.pools:
            saved = {e.address: weights[e.address] for e in pool.endpoints if e.address in weights}
            if saved:
                self._pool(pool.name).restore(saved, unhealthy, now)

    def on_answers(self, addresses: Collection[str]) -> None:
        """Weigh the pools of these endpoints by their signals from now on: their engines answer."""
        for pool in self._pools.values():
            if pool.restored is not None and not pool.weights.keys().isdisjoint(addresses):
                pool.restored = None

    @property
    def restored(self) -> frozenset[str]:
        """Pools whose weights are those of the last good state."""
        return frozenset(name for name, pool in self._pools.items() if pool.restored is not None)

    def weigh(
        self,
        membership: Membership,
        signals: SignalTable,
        now: float,
        ramp: Mapping[str, float] = NO_FACTORS,
        overrides: Mapping[str, int] = NO_OVERRIDES,
    ) -> WeightUpdate:
        """Compute all weights at `now` (seconds, on the clock of the signals' `observed_at`).

        `ramp` has a factor above 0 and below 1 for each endpoint in slow start. `overrides` forces weights in
        [1, 10000] at once, past strategy and stabiliser; those of the others have a mean near 1000.
        """
        self._lay_out(membership)
        tick = Tick(now, ramp, overrides)
        columns = Columns.of(
            signals.arranged(membership.addresses).fresh(now - self._signals.stale_after_seconds),
            self._settings.memory,
        )
        changes: list[PoolChanges] = []
        marked: set[str] = set()
        blind: set[str] = set()
        start = 0
        for name, addresses in self._addresses.items():
            end = start + len(addresses)
            part, pool = columns.part(start, end), self._pool(name)
            if (moved := pool.step(addresses, part, tick)) is not None:
                changes.append(moved)
            marked |= pool.marked(part)
            if addresses and part.blind():
                blind.add(name)
            start = end
        self._tick = tick
        return self._updated(
            membership, Changes(changes) if changes else (), frozenset(marked), frozenset(blind)
        )

    @property
    def in_use(self) -> Mapping[str, int]:
        """The weights in force of the endpoints that Envoys may use, by which they spread requests.

        The same object as long as nothing changes.
        """
        return self._in_use

    def unforced(self) -> Mapping[str, int]:
        """Return the weights of the last tick as they would be without overrides."""
        tick, weights = self._tick, self._last.weights
        if tick is None or tick.overrides.keys().isdisjoint(weights):
            return weights
        own = dict(weights)
        for name, addresses in self._addresses.items():
            forced = [row for row, address in enumerate(addresses) if address in tick.overrides]
            if forced:
                pool = self._pools[name]
                shares = [pool.target_share(row) for row in range(len(addresses))]
                computed = to_weights([nan if share is None else share for share in shares])
                own |= {addresses[row]: int(computed[row]) for row in forced}
        return own

    def verdicts(self) -> dict[str, Verdict]:
        """Return the verdict of every endpoint of the last tick. Made at each call."""
        tick = self._tick
        if tick is None:
            return {}
        return {
            address: self._pools[name].verdict(row, tick, marked=address in self._last.unhealthy)
            for name, addresses in self._addresses.items()
            for row, address in enumerate(addresses)
        }

    def verdict(self, address: str) -> Verdict | None:
        """Return one endpoint's; None for one that was not there at the last tick."""
        if (place := self._place(address)) is None:
            return None
        pool, row, tick = place
        return pool.verdict(row, tick, marked=address in self._last.unhealthy)

    def signals(self, address: str) -> Mapping[str, SignalReading | None]:
        """Return the signals behind one endpoint's weight, see `PoolVerdicts.signals`."""
        if (place := self._place(address)) is None:
            return {}
        pool, row, tick = place
        return pool.signals(row, tick)

    def _place(self, address: str) -> tuple[PoolWeights, int, Tick] | None:
        """Return pool, row and tick of an endpoint of the last tick."""
        tick, membership = self._tick, self._membership
        if tick is None or membership is None or address not in membership.by_address:
            return None
        name = membership.by_address[address].pool
        return self._pools[name], self._addresses[name].index(address), tick

    def _lay_out(self, membership: Membership) -> None:
        if membership is not self._membership:
            self._membership = membership
            self._addresses = {
                pool.name: tuple(endpoint.address for endpoint in pool.endpoints) for pool in membership.pools
            }
            self._pools = {name: pool for name, pool in self._pools.items() if name in self._addresses}

    def _pool(self, name: str) -> PoolWeights:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = PoolWeights(name, self._settings)
        return pool

    def _updated(
        self,
        membership: Membership,
        changes: Sequence[WeightChange],
        marked: frozenset[str],
        blind: frozenset[str],
    ) -> WeightUpdate:
        last = self._last
        weights = last.weights
        moved = bool(changes) or weights.keys() != membership.by_address.keys()
        if moved:
            weights = MappingProxyType(
                {
                    address: weight
                    for pool in membership.pools
                    for address, weight in self._pools[pool.name].weights.items()
                }
            )
        self._last = WeightUpdate(weights, marked, moved or marked != last.unhealthy, changes, blind)
        if self._last.changed:
            self._in_use = {address: weights[address] for address in weights.keys() - marked}
        return self._last
