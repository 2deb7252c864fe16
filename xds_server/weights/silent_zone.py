"""The silent zone: memory so full that an engine is about to fail while its probes still answer.

Latency shows it too late, so memory alone lowers every strategy's score here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from fleet.settings import SilentZoneSettings
    from xds_server.weights.columns import FloatArray


def silent_zone(memory_used_ratio: npt.ArrayLike, settings: SilentZoneSettings) -> FloatArray:
    """Return one factor an endpoint: 1 up to `from_ratio`, `least_factor` from `full_ratio` on.

    Between the two it falls along a smoothstep (3 t^2 - 2 t^3): without a kink, so noise at either edge moves
    nothing, and steepest in the middle. Unknown memory (NaN) is 1.
    """
    memory = np.nan_to_num(np.asarray(memory_used_ratio, dtype=np.float64), nan=0.0)
    depth = np.clip((memory - settings.from_ratio) / (settings.full_ratio - settings.from_ratio), 0.0, 1.0)
    # Rounding may pass 1 by a hair.
    fallen = np.minimum(depth * depth * (3.0 - 2.0 * depth), 1.0)
    result: FloatArray = 1.0 - (1.0 - settings.least_factor) * fallen
    return result
