"""The reason of a weight: each step from the signals to the number, and the steps that decide it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from fleet.signals import ROW, Source
from xds_server.weights.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import WeightSettings
    from xds_server.weights.columns import Columns, FloatArray, Peers
    from xds_server.weights.faults import FaultFactors
    from xds_server.weights.stabiliser import StabiliserStep

_FAULT_SIGNALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "unreachable": "reachable",
        "not_ready": "ready",
        "stalled": "stalled",
        "gpu_health": "gpu_health_score",
        "silent_zone": "memory",
        "trust": "trust_ratio",
    }
)
"""The signal that each fault follows from, as `Strategy.signals` has it."""
_MEMORY_SIGNALS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "kv": ("memory_used_ratio",),
        "gpu": ("gpu_memory_used_ratio",),
        "highest": ("memory_used_ratio", "gpu_memory_used_ratio"),
    }
)
"""The signals that `memory` stands for, by `weights.memory`."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The inputs of one moment for all pools, apart from signals."""

    now: float
    ramp: Mapping[str, float]
    overrides: Mapping[str, int]


class SignalReading(NamedTuple):
    """One signal of one endpoint at the last tick."""

    value: float | None
    """None: the signal is too old to count."""
    age_seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """One endpoint's weight at the last tick, with its reason."""

    address: str
    pool: str
    score: float | None
    """The strategy's, on its own scale; None while the weights are those of the last good state."""
    factors: Mapping[str, float]
    """The factors that lower its weight apart from its load, by name: `unreachable`, `not_ready`, `stalled`,
    `gpu_health`, `silent_zone`, `trust`, `slow_start`. Empty for none."""
    weight: int | None
    """In force, in [1, 10000]; None before the pool's first update."""
    share: float | None
    """That weight over the sum of its pool's."""
    target_share: float | None
    """The stabiliser's share for the scores of this tick. The dead band, slow start and overrides explain its
    difference from the weight in force."""
    unhealthy: bool
    """Whether Envoys must not use it."""
    reason: str
    """The cause, then the steps that decide the number, such as `memory 0.93` or `queue 41, at the floor`.

    Causes: a signal, `unknown`, `idle`, `neutral`, a fault (`silent zone 0.93`, `trust 0.1`,
    `gpu health 0.4`, `stalled`, `unreachable`, `not ready`), `slow start 0.35`, `override`, or
    `last good state`. Steps: `slow start 0.35`, and those of `StabiliserStep.limits`."""


@dataclass(frozen=True)
class PoolComputation:
    """One pool's scores, faults and stabilised shares at one tick, by endpoint."""

    scores: FloatArray
    factors: FaultFactors
    memory: FloatArray
    """The memory that the silent zone counts, 0 to 1."""
    step: StabiliserStep
    columns: Columns

    @cached_property
    def peers(self) -> Peers:
        """The usual latencies of the pool."""
        return self.columns.peers()


@dataclass(frozen=True, slots=True)
class PoolVerdicts:
    """The verdicts of one pool at one tick; each is made on demand."""

    addresses: tuple[str, ...]
    computation: PoolComputation | None
    """None: the weights are those of the last good state."""
    settings: WeightSettings
    tick: Tick

    def score(self, row: int) -> float | None:
        """Return the strategy's score of one endpoint."""
        return None if self.computation is None else float(self.computation.scores[row])

    def factors(self, row: int) -> Mapping[str, float]:
        """Return the factors that lower the weight of one endpoint apart from its load."""
        if self.computation is None:
            return {}
        factors = dict(self.computation.factors.named(row))
        if (slow_start := self.tick.ramp.get(self.addresses[row])) is not None:
            factors["slow_start"] = slow_start
        return MappingProxyType(factors)

    def reason(self, row: int) -> str:
        """Name the cause of one endpoint's weight and the steps that decide the number."""
        address, computation, settings = self.addresses[row], self.computation, self.settings
        if address in self.tick.overrides:
            return "override"
        if computation is None:
            return "last good state"
        slow_start = self.tick.ramp.get(address)
        causes = [] if (fault := _fault(computation, row)) is None else [fault]
        if slow_start is not None:
            causes.append(f"slow start {slow_start:.2f}")
        if not causes and computation.step.neutral[row]:
            causes.append("neutral")
        if not causes:
            strategy = STRATEGIES[settings.strategy]
            causes.append(strategy.reason(computation.columns, row, settings, computation.peers))
        return ", ".join([*causes, *computation.step.limits(row)])

    def signals(self, row: int) -> dict[str, SignalReading | None]:
        """Return the signals behind one endpoint's weight: those of the strategy and of its faults.

        None: never observed. Empty: the weights are those of the last good state.
        """
        computation, settings = self.computation, self.settings
        if computation is None:
            return {}
        faults = [_FAULT_SIGNALS[name] for name, _ in computation.factors.named(row)]
        names = [
            signal
            for name in (*STRATEGIES[settings.strategy].signals, *faults)
            for signal in (_MEMORY_SIGNALS[settings.memory] if name == "memory" else (name,))
        ]
        return {name: self._reading(computation, name, row) for name in names}

    def _reading(self, computation: PoolComputation, name: str, row: int) -> SignalReading | None:
        table, at = computation.columns.signals, (ROW[name], row)
        value, observed_at = float(table.values[at]), float(table.observed_at[at])
        if isnan(observed_at):
            return None
        age_seconds = max(0.0, self.tick.now - observed_at)
        return SignalReading(
            None if isnan(value) else value, age_seconds, Source(int(table.sources[at])).label
        )


def _fault(computation: PoolComputation, row: int) -> str | None:
    """Name the worst fault; the silent zone by its memory."""
    factors = dict(computation.factors.named(row))
    if not factors:
        return None
    worst = min(factors, key=factors.__getitem__)
    if worst in {"unreachable", "not_ready", "stalled"}:
        return worst.replace("_", " ")
    if worst == "silent_zone":
        return f"silent zone {computation.memory[row]:.2f}"
    signals = computation.columns.signals
    if worst == "gpu_health":
        return f"gpu health {signals['gpu_health_score'][row]:.2g}"
    # The trust that counts may still rise to the signal: then it decides.
    return f"trust {np.fmin(signals['trust_ratio'][row], factors[worst]):.2g}"
