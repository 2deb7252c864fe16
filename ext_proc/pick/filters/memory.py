"""Those that are not in the silent zone: memory so full that an engine is about to preempt or to fail.

Its probes still answer then, so nothing else tells. The KV cache counts where it is told, else the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.scene import Fleet


def passes(fleet: Fleet) -> NDArray[np.bool_] | None:
    """Return who has memory left, as far as is known."""
    kv, gpu = fleet.columns.signal("memory_used_ratio"), fleet.columns.signal("gpu_memory_used_ratio")
    used = np.where(np.isnan(kv), gpu, kv)
    result: NDArray[np.bool_] = ~(used >= fleet.settings.cost.memory_pressure_full)
    return result
