"""Those that do not hang while requests of ours wait there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext

STALLED_FROM: Final = 0.5


def passes(context: FilterContext) -> NDArray[np.bool_] | None:
    """Return who works, as far as is known."""
    result: NDArray[np.bool_] = ~(context.columns.signal("stalled") > STALLED_FROM)
    return result
