"""Those whose answers are mostly good: not those that fail, or shed load with 429 or 503."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.scene import Fleet

TRUSTED_FROM: Final = 0.5
"""Below it an endpoint gets a trickle only, so that its recovery is seen."""


def passes(fleet: Fleet) -> NDArray[np.bool_] | None:
    """Return who is trusted, as far as is known."""
    result: NDArray[np.bool_] = ~(fleet.columns.signal("trust_ratio") < TRUSTED_FROM)
    return result
