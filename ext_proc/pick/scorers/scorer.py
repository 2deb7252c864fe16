"""What a scorer is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.pick import Question
    from ext_proc.pick.scene import Scene


class Score(Protocol):
    """The part that depends on the prompt."""

    def __call__(self, question: Question, forecast: Forecast, /) -> NDArray[np.float64] | None:
        """Return seconds by candidate; None: this prompt makes no difference."""
        ...


class Scored(NamedTuple):
    """Seconds that speak against each candidate of a tick."""

    fixed: NDArray[np.float64] | None = None
    """Whatever the prompt: computed once a tick."""
    each: Score | None = None
    """For each prompt: a few operations over columns."""


class Scorer(Protocol):
    """One scorer."""

    def __call__(self, scene: Scene, /) -> Scored:
        """Bind it to a tick."""
        ...
