"""Why an endpoint weighs what it weighs: each step from its score on, and which one decided."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from xds_server.weights.strategies import STRATEGIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.settings import WeightSettings
    from xds_server.weights.columns import BoolArray, Columns, FloatArray, Peers
    from xds_server.weights.faults import FaultFactors


@dataclass(frozen=True, slots=True)
class Verdict:
    """One endpoint at the last tick."""

    address: str
    pool: str
    score: float | None
    """The strategy's, on its own scale; None while the weights are those of the last good state."""
    factors: Mapping[str, float]
    """What lowers its weight besides its load, by name: `unreachable`, `not_ready`, `stalled`, `gpu_health`,
    `silent_zone`, `trust`, `slow_start`. Empty for none."""
    weight: int | None
    """In force, in [1, 10000]; None before the pool's first update."""
    share: float | None
    """That weight over the sum of its pool's."""
    target_share: float | None
    """What the stabiliser makes of the scores now. Between it and the weight in force lie the dead band, slow
    start and overrides."""
    unhealthy: bool
    """Whether Envoys must not use it."""
    reason: str
    """What decided: a signal (`memory 0.93`, `queue 41`), `unknown`, `idle`, `neutral`, `slow start 0.35`,
    `silent zone 0.93`, `trust 0.1`, `gpu health 0.4`, `stalled`, `unreachable`, `not ready`, `override`, or
    `last good state`."""


@dataclass(frozen=True)
class Appraisal:
    """One pool at one tick, as arrays over its endpoints."""

    scores: FloatArray
    factors: FaultFactors
    memory: FloatArray
    """What the silent zone looks at, 0 to 1."""
    shares: FloatArray
    neutral: BoolArray
    """Endpoints that count as the mean because they are new or claim to be idle."""

    columns: Columns

    @cached_property
    def peers(self) -> Peers:
        """What is usual in the pool."""
        return self.columns.peers()

    def factors_of(self, row: int, slow_start: float | None) -> Mapping[str, float]:
        """Return what lowers the weight of one endpoint besides its load."""
        factors = dict(self.factors.named(row))
        if slow_start is not None:
            factors["slow_start"] = slow_start
        return MappingProxyType(factors)

    def reason(self, row: int, slow_start: float | None, settings: WeightSettings) -> str:
        """Say what decides the weight of one endpoint."""
        return (
            self._fault(row)
            or (None if slow_start is None else f"slow start {slow_start:.2f}")
            or ("neutral" if self.neutral[row] else None)
            or STRATEGIES[settings.strategy].reason(self.columns, row, settings, self.peers)
        )

    def _fault(self, row: int) -> str | None:
        """Name the worst fault; the silent zone by its memory."""
        factors = dict(self.factors.named(row))
        if not factors:
            return None
        worst = min(factors, key=factors.__getitem__)
        if worst in {"unreachable", "not_ready", "stalled"}:
            return worst.replace("_", " ")
        if worst == "silent_zone":
            return f"silent zone {self.memory[row]:.2f}"
        if worst == "gpu_health":
            return f"gpu health {self.columns.signals['gpu_health_score'][row]:.2g}"
        # The trust that counts may still be on its way up: then it decides.
        return f"trust {np.fmin(self.columns.signals['trust_ratio'][row], factors[worst]):.2g}"
