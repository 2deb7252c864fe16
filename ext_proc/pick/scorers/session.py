"""The session's last endpoint costs bonus_seconds less: it keeps the session as long as that is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.scorers.scorer import Scored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question
    from ext_proc.pick.scene import Scene


def score(scene: Scene) -> Scored:
    """Bind to a tick."""
    candidates, bonus = scene.candidates, scene.settings.sessions.bonus_seconds

    def seconds(question: Question, _forecast: Forecast) -> NDArray[np.float64] | None:
        if not question.session or (place := candidates.place(question.session)) is None:
            return None
        result = np.zeros(len(candidates.addresses))
        result[place] = -bonus
        return result

    return Scored(each=seconds)
