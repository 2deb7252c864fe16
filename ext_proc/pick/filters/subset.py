"""Those that the gateway allows for the request (Gateway API Inference Extension, proposal 004)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext


def passes(context: FilterContext) -> NDArray[np.bool_] | None:
    """Return who is allowed; None: everybody."""
    if context.subset is None:
        return None
    shape = context.shape
    allowed = np.zeros(len(shape.addresses), np.bool_)
    allowed[context.subset.rows(shape.position, lambda: shape.hosts)] = True
    return allowed
