"""What an endpoint costs: every scorer by its name in the settings. A new one is one file and one line here.

All of them return seconds that speak against an endpoint, below 0 what speaks for it. Seconds add up, and
each can be measured by itself; ranks would have to be traded against each other anew in every situation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.scorers import (
    adapter,
    decode_load,
    first_token,
    leading,
    memory,
    pace,
    session,
    topology,
    trust,
)
from ext_proc.pick.scorers.scorer import Score, Scored, Scorer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question
    from ext_proc.pick.scene import Scene
    from fleet.settings.picks import ScorerSettings

__all__ = ["SCORERS", "Score", "Scored", "Scorer", "Scores"]

SCORERS: Final[dict[str, Scorer]] = {
    "first_token": first_token.score,
    "decode_load": decode_load.score,
    "memory": memory.score,
    "trust": trust.score,
    "pace": pace.score,
    "topology": topology.score,
    "adapter": adapter.score,
    "session": session.score,
    "leading": leading.score,
}
"""Each is called once a tick."""


class Scores:
    """The weighted sum over some scorers, bound to the candidates of one tick."""

    def __init__(self, scene: Scene, composed: Iterable[ScorerSettings]) -> None:
        self.fixed: NDArray[np.float64] = np.zeros(len(scene.candidates.addresses))
        """What holds whatever the prompt."""
        self._each: list[tuple[float, Score]] = []
        for entry in composed:
            if not entry.weight:
                continue
            fixed, each = SCORERS[entry.name](scene)
            if fixed is not None:
                self.fixed = self.fixed + entry.weight * fixed
            if each is not None:
                self._each.append((entry.weight, each))

    def cost(self, question: Question, forecast: Forecast) -> NDArray[np.float64]:
        """Return what a prompt costs on each candidate, in seconds."""
        cost = self.fixed
        for weight, each in self._each:
            seconds = each(question, forecast)
            if seconds is not None:
                cost = cost + (seconds if weight == 1.0 else weight * seconds)
        return cost
