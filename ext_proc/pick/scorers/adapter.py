"""Loading a LoRA adapter, where nothing was sent for it lately: adapter_seconds / (1 + uses)."""

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
    cost, candidates = scene.settings.cost, scene.candidates
    if not cost.adapter_seconds:
        return Scored()
    shares = candidates.shares()

    def seconds(question: Question, _forecast: Forecast) -> NDArray[np.float64] | None:
        if not question.adapter:
            return None
        missing = scene.adapters.missing(question.adapter, question.now - cost.adapter_memory_seconds)
        if missing is None:
            return None
        lacks = missing[candidates.rows]
        uses = scene.adapters.uses(
            question.adapter,
            scene.demand.at(question.now),
            float(shares[~lacks].sum()),
            shares.size,
            question.now,
        )
        return np.where(lacks, cost.adapter_seconds / (1.0 + uses), 0.0)

    return Scored(each=seconds)
