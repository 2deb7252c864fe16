"""Who had the beginning of the prompt some time ago, where nobody is known to hold it any more.

Engines may keep a prefix longer than the index does, in host memory or on a disk. So it is taken to be there
with a probability of `WORTH`, and that much of its cold prefill is taken off, at its price.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.scorers.scorer import Scored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question
    from ext_proc.pick.scene import Scene

WORTH: Final = 0.5
LEADING_BYTES: Final = 4096
"""The beginning of a prompt that is remembered, see `ext_proc.prefix.leading`."""


def score(scene: Scene) -> Scored:
    """Bind to a tick."""
    candidates = scene.candidates

    def seconds(question: Question, forecast: Forecast) -> NDArray[np.float64] | None:
        if not question.had or not question.text_bytes:
            return None
        result = np.zeros(len(candidates.addresses))
        share = -WORTH * min(1.0, LEADING_BYTES / question.text_bytes)
        for address in question.had:
            if (place := candidates.place(address)) is not None:
                result[place] = share * forecast.priced[place]
        return result

    return Scored(each=seconds)
