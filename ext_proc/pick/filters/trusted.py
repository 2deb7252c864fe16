"""Those whose answers are mostly good: not those that fail, or shed load with 429 or 503."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext

TRUSTED_FROM: Final = 0.5
"""Below it an endpoint gets a trickle only."""


WHOLE_FROM: Final = 0.995
"""Trust is told in hundredths."""


def passes(context: FilterContext) -> NDArray[np.bool_] | None:
    """Return who is trusted, as far as is known."""
    result: NDArray[np.bool_] = ~(context.columns.signal("trust_ratio") < TRUSTED_FROM)
    return result


def in_doubt(context: FilterContext) -> NDArray[np.bool_]:
    """Return whose trust is not whole: too little may be sent there for anybody to hear that it is well."""
    result: NDArray[np.bool_] = context.columns.signal("trust_ratio") < WHOLE_FROM
    return result
