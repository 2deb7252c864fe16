"""Faults as factors of the weight: what is broken or about to break, whatever its load says.

Load moves weights slowly; a fault takes effect with the next update. A factor of 0 leaves an endpoint the
floor share, so that its recovery shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from fleet.settings import FaultSettings, SilentZoneSettings
    from xds_server.weights.columns import BoolArray, Columns, FloatArray

ISOLATED_SCORE: Final = 0.4
"""A GPU's health score up to which it is to get nothing."""
LIMITED_SCORE: Final = 0.9
"""A GPU's health score up to which it gets less."""
_ROUNDING: Final = 1e-6
"""Scores may have come over the wire as floats of 32 bits."""


@dataclass(frozen=True, slots=True)
class FaultFactors:
    """One factor in [0, 1] an endpoint and kind of fault; 1 is no fault."""

    unreachable: FloatArray
    not_ready: FloatArray
    stalled: FloatArray
    gpu_health: FloatArray
    silent_zone: FloatArray
    trust: FloatArray

    def but_the_zone(self) -> FloatArray:
        """All together, the silent zone's left out."""
        there: FloatArray = self.unreachable * self.not_ready
        return there * self.stalled * self.gpu_health * self.trust

    def named(self, row: int) -> Iterator[tuple[str, float]]:
        """Yield the name and factor of each fault that lowers the weight of the endpoint at `row`."""
        for name in self.__slots__:
            if (factor := float(getattr(self, name)[row])) < 1.0:
                yield name, factor


def fault_factors(
    columns: Columns,
    memory: FloatArray,
    trust: FloatArray,
    zone: SilentZoneSettings,
    faults: FaultSettings,
) -> FaultFactors:
    """Return the factors of one pool; `memory` is what the silent zone looks at, `trust` what counts of it.

    Unknown is no fault.
    """
    ones = np.ones(len(columns))
    zoned = silent_zone(memory, zone) if memory.max(initial=0.0) > zone.from_ratio else ones
    if not columns.faulty.any():
        return FaultFactors(ones, ones, ones, ones, zoned, trust)
    signals, health = columns.signals, columns.signals["gpu_health_score"]
    limited = np.where(health <= LIMITED_SCORE + _ROUNDING, faults.limited_factor, 1.0)
    return FaultFactors(
        unreachable=np.where(signals["reachable"] == 0, 0.0, 1.0),
        not_ready=np.where(signals["ready"] == 0, 0.0, 1.0),
        stalled=np.where(signals["stalled"] > 0, 0.0, 1.0),
        gpu_health=np.where(isolated(health), 0.0, limited),
        silent_zone=zoned,
        trust=trust,
    )


def silent_zone(memory_used_ratio: npt.ArrayLike, settings: SilentZoneSettings) -> FloatArray:
    """Return the silent zone's factors: 1 up to `from_ratio`, `least_factor` from `full_ratio` on.

    In the silent zone memory is so full that an engine is about to fail while its probes still answer.
    Latency shows it too late, so memory alone lowers every strategy's score. Between the two ratios the
    factor falls along a smoothstep (3 t^2 - 2 t^3): without a kink, so noise at either edge moves nothing,
    and steepest in the middle. Unknown memory (NaN) is 1.
    """
    memory = np.nan_to_num(np.asarray(memory_used_ratio, dtype=np.float64), nan=0.0)
    depth = np.clip((memory - settings.from_ratio) / (settings.full_ratio - settings.from_ratio), 0.0, 1.0)
    # Rounding may pass 1 by a hair.
    fallen = np.minimum(depth * depth * (3.0 - 2.0 * depth), 1.0)
    result: FloatArray = 1.0 - (1.0 - settings.least_factor) * fallen
    return result


def isolated(gpu_health_score: FloatArray) -> BoolArray:
    """Whether a GPU is to get nothing; unknown is fine."""
    result: BoolArray = gpu_health_score <= ISOLATED_SCORE + _ROUNDING
    return result
