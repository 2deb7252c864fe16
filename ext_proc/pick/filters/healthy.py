"""Those that are there and ready.

Not those that give no connection, whose probe has to pass first, or whose GPU is isolated or drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext

ISOLATED_SCORE: Final = 0.4
"""A GPU's health up to which its endpoints get no picks: isolated or drained."""


def passes(context: FilterContext) -> NDArray[np.bool_] | None:
    """Return who is healthy, as far as is known."""
    columns = context.columns
    away = (columns.signal("reachable") == 0) | (columns.signal("ready") == 0)
    result: NDArray[np.bool_] = ~(away | (columns.signal("gpu_health_score") <= ISOLATED_SCORE))
    return result
