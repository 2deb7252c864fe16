"""Loads to weights, in one sentence: collect, compute, stabilise, slow newcomers down, make integers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from fleet.load import Load, fresh
from xds_server.weights.border import to_weights
from xds_server.weights.columns import Columns
from xds_server.weights.health import unhealthy
from xds_server.weights.stabiliser import Stabiliser
from xds_server.weights.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fleet.endpoint import Membership
    from fleet.settings import SignalSettings, StabiliserSettings, WeightSettings


_NO_RAMP: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WeightChange:
    """One endpoint's new weight and why, for traces."""

    address: str
    old: int | None
    """None for an endpoint that has just joined its pool."""
    new: int
    reason: str
    """The signal that decides its score: `memory 0.93`, `queue 41`, `p99 3.2 s`, `idle`, `unknown`; or
    `slow start 0.35`."""
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
    weights: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    """The stabilised shares in force."""
    ramp: Mapping[str, float] = field(default_factory=dict)
    """The factors that `weights` hold, for those in slow start."""
    published_at: float = 0.0
    restored: frozenset[str] | None = None
    """While the weights are those of the last good state: who was unhealthy in it."""

    def ramp_is_due(self, ramp: Mapping[str, float], now: float, settings: StabiliserSettings) -> bool:
        """Whether slow start has come far enough for other weights. Its end always is."""
        if ramp == self.ramp or now - self.published_at < settings.minimum_interval_seconds:
            return False
        return any(
            address not in ramp or abs(ramp[address] - before) > settings.dead_band_ratio * before
            for address, before in self.ramp.items()
        )


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

    def restore(
        self, membership: Membership, weights: Mapping[str, int], unhealthy: Collection[str], now: float
    ) -> None:
        """Begin with the weights of the last good state.

        They stay as they are, marks of health included, until `heard` names one of the pool's endpoints or
        others are in it; then weights move on from them.
        """
        for pool in membership.pools:
            held = {e.address: weights[e.address] for e in pool.endpoints if e.address in weights}
            if held:
                state = self._state(pool.name)
                total = sum(held.values())
                state.weights = held
                state.shares = {address: weight / total for address, weight in held.items()}
                state.stabiliser.published(state.shares, now)
                state.restored = frozenset(held).intersection(unhealthy)

    def heard(self, addresses: Collection[str]) -> None:
        """Let the pools of these endpoints stand on what their engines say from now on."""
        for state in self._pools.values():
            if state.restored is not None and not state.weights.keys().isdisjoint(addresses):
                state.restored = None

    @property
    def restored(self) -> frozenset[str]:
        """Pools whose weights are those of the last good state."""
        return frozenset(name for name, state in self._pools.items() if state.restored is not None)

    def weigh(
        self,
        membership: Membership,
        loads: Mapping[str, Load],
        now: float,
        ramp: Mapping[str, float] = _NO_RAMP,
    ) -> WeightUpdate:
        """Compute all weights at `now` (seconds, on the clock of the loads' `observed_at`).

        `ramp` has a factor above 0 and below 1 for each endpoint in slow start.
        """
        current = self._collect(membership, loads, now)
        changes: list[WeightChange] = []
        marked: set[str] = set()
        for pool in membership.pools:
            addresses = [endpoint.address for endpoint in pool.endpoints]
            changes += self._weigh_pool(pool.name, addresses, current, ramp, now)
            marked |= self._unhealthy(pool.name, addresses, current)
        names = {pool.name for pool in membership.pools}
        self._pools = {name: state for name, state in self._pools.items() if name in names}
        return self._updated(membership, tuple(changes), frozenset(marked), _blind(membership, current))

    def _collect(self, membership: Membership, loads: Mapping[str, Load], now: float) -> dict[str, Load]:
        """Return every endpoint's fresh signals; what is stale is unknown."""
        stale_after, unknown = self._signals.stale_after_seconds, Load()
        return {
            address: fresh(loads.get(address, unknown), now, stale_after) for address in membership.by_address
        }

    def _state(self, name: str) -> _PoolState:
        state = self._pools.get(name)
        if state is None:
            state = self._pools[name] = _PoolState(Stabiliser(self._settings.stabiliser))
        return state

    def _unhealthy(self, name: str, addresses: list[str], loads: Mapping[str, Load]) -> frozenset[str]:
        restored = self._pools[name].restored
        if restored is not None:
            return restored.intersection(addresses)
        return unhealthy(addresses, loads, self._settings.stabiliser.max_unhealthy_share)

    def _weigh_pool(
        self,
        name: str,
        addresses: list[str],
        loads: Mapping[str, Load],
        ramp: Mapping[str, float],
        now: float,
    ) -> list[WeightChange]:
        state = self._state(name)
        if state.restored is not None:
            if state.weights.keys() == set(addresses):
                state.stabiliser.published(state.shares, now)
                return []
            state.restored = None
        strategy = STRATEGIES[self._settings.strategy]
        scores = strategy.scores(Columns.of([loads[address] for address in addresses]), self._settings)
        shares = state.stabiliser.step(addresses, scores, now)
        factors = {address: ramp[address] for address in addresses if address in ramp} if ramp else _NO_RAMP
        if shares is not None:
            state.shares = dict(zip(addresses, shares.tolist(), strict=True))
        elif state.ramp_is_due(factors, now, self._settings.stabiliser):
            state.stabiliser.hold(now)
        else:
            return []
        return self._publish(state, loads, factors, now)

    def _publish(
        self, state: _PoolState, loads: Mapping[str, Load], factors: Mapping[str, float], now: float
    ) -> list[WeightChange]:
        slowed = [share * factors.get(address, 1.0) for address, share in state.shares.items()]
        old = state.weights
        state.weights = dict(zip(state.shares, to_weights(slowed).tolist(), strict=True))
        state.ramp, state.published_at = factors, now
        reason = STRATEGIES[self._settings.strategy].reason
        return [
            WeightChange(
                address,
                old.get(address),
                new,
                f"slow start {factors[address]:.2f}"
                if address in factors
                else reason(loads[address], self._settings),
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
