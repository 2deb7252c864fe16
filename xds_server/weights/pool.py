"""One pool from its columns to its integers, and what that needs to remember between ticks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeVar, overload

from fleet.columns import fill_unknown
from xds_server.weights.border import to_weights
from xds_server.weights.faults import fault_factors
from xds_server.weights.health import unhealthy
from xds_server.weights.peaks import Peaks
from xds_server.weights.stabiliser import Stabiliser
from xds_server.weights.strategies import STRATEGIES
from xds_server.weights.trusted import Trusted
from xds_server.weights.verdict import PoolComputation, PoolVerdicts, Tick, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fleet.settings import WeightSettings
    from xds_server.weights.columns import Columns
    from xds_server.weights.verdict import SignalReading

T = TypeVar("T")
NO_FACTORS: Final[Mapping[str, float]] = MappingProxyType({})
NO_OVERRIDES: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WeightChange:
    """One endpoint's new weight and why, for traces."""

    address: str
    old: int | None
    """None for an endpoint that has just joined its pool."""
    new: int
    reason: str
    """What decides its weight, as `Verdict.reason` has it."""
    signals: Mapping[str, float]
    """Its fresh ones by name."""
    score: float | None = None
    """The strategy's, on its own scale."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """As `Verdict.factors` has them."""


@dataclass(frozen=True, slots=True)
class PoolChanges:
    """The changed weights of one pool at one tick."""

    rows: list[int]
    old: Mapping[str, int]
    new: Mapping[str, int]
    verdicts: PoolVerdicts
    columns: Columns

    def explained(self, row: int) -> WeightChange:
        """Return the change of the endpoint at `row`."""
        verdicts = self.verdicts
        address = verdicts.addresses[row]
        return WeightChange(
            address=address,
            old=self.old.get(address),
            new=self.new[address],
            reason=verdicts.reason(row),
            signals=self.columns.signals.endpoint_values(row),
            score=verdicts.score(row),
            factors=verdicts.factors(row),
        )


class Changes(Sequence[WeightChange]):
    """The changed weights of one tick, by pool. Each is explained when it is read: all may have changed."""

    def __init__(self, pools: Sequence[PoolChanges]) -> None:
        self._places = [(pool, row) for pool in pools for row in pool.rows]

    def __len__(self) -> int:
        """How many endpoints have another weight."""
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> WeightChange: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[WeightChange, ...]: ...
    def __getitem__(self, index: int | slice) -> WeightChange | tuple[WeightChange, ...]:
        """Return one change, or some of them."""
        if isinstance(index, slice):
            return tuple(pool.explained(row) for pool, row in self._places[index])
        pool, row = self._places[index]
        return pool.explained(row)


class PoolWeights:
    """The weights of one pool over time."""

    def __init__(self, name: str, settings: WeightSettings) -> None:
        self.name = name
        self.weights: dict[str, int] = {}
        self._total = 0
        """Their sum."""
        self.restored: frozenset[str] | None = None
        """While the weights are those of the last good state: the endpoints that were unhealthy in it."""
        self._settings = settings
        self._stabiliser = Stabiliser(settings.stabiliser)
        self._peaks = Peaks()
        self._trusted = Trusted()
        self._addresses: tuple[str, ...] = ()
        self._shares: dict[str, float] = {}
        """The stabilised shares in force."""
        self._ramp = NO_FACTORS
        """The factors that `weights` hold, for those in slow start."""
        self._overrides = NO_OVERRIDES
        """The forced weights that `weights` hold."""
        self._saved: Mapping[str, int] = NO_OVERRIDES
        self._published_at = 0.0
        self._computation: PoolComputation | None = None
        """The last step's; None while the weights are those of the last good state."""

    def reconfigure(self, settings: WeightSettings) -> None:
        """Take other settings from the next step on."""
        self._settings = settings
        self._stabiliser.settings = settings.stabiliser

    def restore(self, weights: Mapping[str, int], marked: Collection[str], now: float) -> None:
        """Begin with the weights of the last good state."""
        total = self._total = sum(weights.values())
        self._saved, self.weights = weights, dict(weights)
        self._shares = {address: weight / total for address, weight in weights.items()}
        self._stabiliser.published(self._shares, now)
        self.restored = frozenset(weights).intersection(marked)

    def step(self, addresses: tuple[str, ...], columns: Columns, tick: Tick) -> PoolChanges | None:
        """Compute, and return what has changed; None: nothing, as often."""
        self._addresses = addresses
        ramp = _of(tick.ramp, addresses) or NO_FACTORS
        overrides = _of(tick.overrides, addresses) or NO_OVERRIDES
        if self.restored is not None:
            if self.weights.keys() == set(addresses):
                self._stabiliser.published(self._shares, tick.now)
                changed = overrides != self._overrides
                return self._take({**self._saved, **overrides}, columns, tick) if changed else None
            self.restored = None
        if not self._compute(addresses, columns, tick.now):
            if overrides == self._overrides and not self._ramp_moved(ramp, tick.now):
                return None
            self._stabiliser.hold(tick.now)
        slowed = [share * ramp.get(address, 1.0) for address, share in self._shares.items()]
        weights = dict(zip(self._shares, to_weights(slowed).tolist(), strict=True))
        self._ramp, self._published_at = ramp, tick.now
        return self._take({**weights, **overrides}, columns, tick)

    def marked(self, columns: Columns) -> frozenset[str]:
        """Return the endpoints that Envoys must not use."""
        if self.restored is not None:
            return self.restored.intersection(self._addresses)
        return unhealthy(self._addresses, columns, self._settings.stabiliser.max_unhealthy_share)

    def verdict(self, row: int, tick: Tick, *, marked: bool) -> Verdict:
        """Return the weight of the endpoint at `row`, with its reason."""
        address, verdicts = self._addresses[row], self._verdicts(tick)
        weight = self.weights.get(address)
        return Verdict(
            address=address,
            pool=self.name,
            score=verdicts.score(row),
            factors=verdicts.factors(row),
            weight=weight,
            share=None if weight is None else weight / self._total,
            target_share=self.target_share(row),
            unhealthy=marked,
            reason=verdicts.reason(row),
        )

    def signals(self, row: int, tick: Tick) -> Mapping[str, SignalReading | None]:
        """Return the signals behind the weight of the endpoint at `row`, see `PoolVerdicts.signals`."""
        return self._verdicts(tick).signals(row)

    def target_share(self, row: int) -> float | None:
        """Return `Verdict.target_share` of the endpoint at `row`."""
        if self._computation is None:
            return self._shares.get(self._addresses[row])
        return float(self._computation.step.shares[row])

    def _compute(self, addresses: tuple[str, ...], columns: Columns, now: float) -> bool:
        """Bring the shares up to now; return whether they are worth publishing."""
        settings = self._settings
        scores = STRATEGIES[settings.strategy].scores(columns, settings)
        memory = self._peaks.step(
            addresses,
            fill_unknown(columns.memory_used_ratio),
            now,
            settings.stabiliser.smoothing_seconds,
            settings.silent_zone.from_ratio,
        )
        trust = self._trusted.step(addresses, columns, now, settings.stabiliser)
        factors = fault_factors(columns, memory, trust, settings.silent_zone, settings.faults)
        shares = self._stabiliser.step(
            addresses, scores, now, factors.but_the_zone(), factors.silent_zone, columns.idle()
        )
        self._computation = PoolComputation(scores, factors, memory, self._stabiliser.last_step(), columns)
        if shares is not None:
            self._shares = dict(zip(addresses, shares.tolist(), strict=True))
        return shares is not None

    def _ramp_moved(self, ramp: Mapping[str, float], now: float) -> bool:
        """Whether slow start has come far enough for other weights. Its end always is."""
        settings = self._settings.stabiliser
        if ramp == self._ramp or now - self._published_at < settings.minimum_interval_seconds:
            return False
        return any(
            address not in ramp or abs(ramp[address] - before) > settings.dead_band_ratio * before
            for address, before in self._ramp.items()
        )

    def _take(self, weights: dict[str, int], columns: Columns, tick: Tick) -> PoolChanges | None:
        old, self.weights, self._total = self.weights, weights, sum(weights.values())
        self._overrides = _of(tick.overrides, self._addresses) or NO_OVERRIDES
        rows = [row for row, a in enumerate(self._addresses) if old.get(a) != weights[a]]
        return PoolChanges(rows, old, weights, self._verdicts(tick), columns) if rows else None

    def _verdicts(self, tick: Tick) -> PoolVerdicts:
        return PoolVerdicts(self._addresses, self._computation, self._settings, tick)


def _of(values: Mapping[str, T], addresses: Sequence[str]) -> dict[str, T]:
    return {address: values[address] for address in addresses if address in values} if values else {}
