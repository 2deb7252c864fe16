"""Those that serve the model: they name it, or none and take every one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext


def passes(context: FilterContext) -> NDArray[np.bool_] | None:
    """Return who serves the model; None: everybody."""
    rows, size = context.shape.rows(context.model), len(context.shape.addresses)
    if rows.size == size:
        return None
    mask = np.zeros(size, np.bool_)
    mask[rows] = True
    return mask
