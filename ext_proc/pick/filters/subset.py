"""Those that the gateway allows for the request (Gateway API Inference Extension, proposal 004)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.scene import Fleet


def passes(fleet: Fleet) -> NDArray[np.bool_] | None:
    """Return who is allowed; None: everybody."""
    if fleet.subset is None:
        return None
    shape = fleet.shape
    allowed = np.zeros(len(shape.addresses), np.bool_)
    allowed[fleet.subset.rows(shape.position, lambda: shape.hosts)] = True
    return allowed
