"""Those that are not in the silent zone: memory so full that an engine is about to preempt or to fail.

Its probes still answer then, so nothing else tells. Which memory counts is said by `weights.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext


def passes(context: FilterContext) -> NDArray[np.bool_] | None:
    """Return who has memory left, as far as is known."""
    used = context.columns.signal("memory_used_ratio")
    result: NDArray[np.bool_] = ~(used >= context.settings.cost.memory_pressure_full)
    return result
