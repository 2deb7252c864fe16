"""What the requests in flight add to each other: every step of an engine decodes all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ext_proc.pick.scorers.scorer import Scored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question
    from ext_proc.pick.scene import Scene


def score(_scene: Scene) -> Scored:
    """Bind to a tick."""
    return Scored(each=_seconds)


def _seconds(_question: Question, forecast: Forecast) -> NDArray[np.float64]:
    return forecast.load
