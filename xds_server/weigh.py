"""Loads to weights, in one sentence: collect, compute, stabilise, make integers."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from fleet.load import Load, fresh
from xds_server.weights.border import to_weights
from xds_server.weights.columns import Columns
from xds_server.weights.health import unhealthy
from xds_server.weights.stabiliser import Stabiliser
from xds_server.weights.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.endpoint import Membership, Pool
    from fleet.settings import SignalSettings, WeightSettings


@dataclass(frozen=True, slots=True)
class WeightChange:
    """One endpoint's new weight and why, for traces."""

    address: str
    old: int | None
    """None for an endpoint that has just joined its pool."""
    new: int
    reason: str
    """The signal that decides its score: `memory 0.93`, `queue 41`, `p99 3.2 s`, `idle`, `unknown`."""
    load: Load
    """Its fresh signals."""


@dataclass(frozen=True, slots=True)
class WeightUpdate:
    """What one computation came to. Always complete, whether anything changed or not."""

    weights: Mapping[str, int]
    """Address to weight in [1, 10000], for every endpoint of the membership."""
    unhealthy: frozenset[str]
    changed: bool
    """Whether a weight, a health mark or the membership differs from the update before."""
    changes: tuple[WeightChange, ...] = ()
    blind_pools: frozenset[str] = frozenset()
    """Pools with endpoints of which none has any fresh signal that counts: their weights turn equal."""


@dataclass(slots=True)
class _PoolState:
    stabiliser: Stabiliser
    weights: dict[str, int]


class Weigher:
    """Computes every pool's weights, once a tick. It keeps what stabilising needs, by pool."""

    def __init__(self, settings: WeightSettings, signals: SignalSettings) -> None:
        self._settings = settings
        self._signals = signals
        self._pools: dict[str, _PoolState] = {}
        self._last = WeightUpdate(MappingProxyType({}), frozenset(), changed=False)

    def reconfigure(self, settings: WeightSettings, signals: SignalSettings) -> None:
        """Take other settings from the next call on; weights move on from where they are."""
        self._settings = settings
        self._signals = signals
        for state in self._pools.values():
            state.stabiliser.settings = settings.stabiliser

    def weigh(self, membership: Membership, loads: Mapping[str, Load], now: float) -> WeightUpdate:
        """Compute all weights at `now` (seconds, on the clock of the loads' `observed_at`)."""
        current = self._collect(membership, loads, now)
        changes: list[WeightChange] = []
        marked: set[str] = set()
        for pool in membership.pools:
            changes += self._weigh_pool(pool, current, now)
            addresses = [endpoint.address for endpoint in pool.endpoints]
            marked |= unhealthy(addresses, current, self._settings.stabiliser.max_unhealthy_share)
        names = {pool.name for pool in membership.pools}
        self._pools = {name: state for name, state in self._pools.items() if name in names}
        return self._updated(membership, tuple(changes), frozenset(marked), _blind(membership, current))

    def _collect(self, membership: Membership, loads: Mapping[str, Load], now: float) -> dict[str, Load]:
        """Return every endpoint's fresh signals; what is stale is unknown."""
        stale_after, unknown = self._signals.stale_after_seconds, Load()
        return {
            address: fresh(loads.get(address, unknown), now, stale_after) for address in membership.by_address
        }

    def _weigh_pool(self, pool: Pool, loads: Mapping[str, Load], now: float) -> list[WeightChange]:
        state = self._pools.get(pool.name)
        if state is None:
            state = self._pools[pool.name] = _PoolState(Stabiliser(self._settings.stabiliser), {})
        strategy = STRATEGIES[self._settings.strategy]
        addresses = [endpoint.address for endpoint in pool.endpoints]
        scores = strategy.scores(Columns.of([loads[address] for address in addresses]), self._settings)
        shares = state.stabiliser.step(addresses, scores, now)
        if shares is None:
            return []
        old = state.weights
        state.weights = dict(zip(addresses, to_weights(shares).tolist(), strict=True))
        return [
            WeightChange(
                address,
                old.get(address),
                new,
                strategy.reason(loads[address], self._settings),
                loads[address],
            )
            for address, new in state.weights.items()
            if old.get(address) != new
        ]

    def _updated(
        self,
        membership: Membership,
        changes: tuple[WeightChange, ...],
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
        return self._last


def _blind(membership: Membership, loads: Mapping[str, Load]) -> frozenset[str]:
    return frozenset(
        pool.name
        for pool in membership.pools
        if pool.endpoints and all(_unknown(loads[endpoint.address]) for endpoint in pool.endpoints)
    )


def _unknown(load: Load) -> bool:
    return load.memory_used_ratio is None and load.queue_depth is None and load.latency_p99_seconds is None
