"""Who had the beginning of the prompt some time ago, where nobody is known to hold it any more.

Engines may keep a prefix longer than the index does, in host memory or on a disk. So it is taken to be there
with a probability of `WORTH`, and that much of its cold prefill is taken off, at its price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.cost_terms.term import CostTerm

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest

WORTH: Final = 0.5
LEADING_BYTES: Final = 4096
"""The beginning of a prompt that is remembered, see `ext_proc.prefix.leading`."""


def bind(context: TickContext) -> CostTerm:
    """Bind to a tick."""
    candidates = context.candidates

    def seconds(request: PickRequest, forecast: Forecast) -> NDArray[np.float64] | None:
        if not request.earlier_holders or not request.text_bytes:
            return None
        result = np.zeros(len(candidates.addresses))
        share = -WORTH * min(1.0, LEADING_BYTES / request.text_bytes)
        for address in request.earlier_holders:
            if (place := candidates.place(address)) is not None:
                result[place] = share * forecast.priced[place]
        return result

    return CostTerm(by_prompt=seconds)
