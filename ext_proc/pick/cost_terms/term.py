"""What a cost term is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest


class PromptSeconds(Protocol):
    """The part that depends on the prompt."""

    def __call__(self, request: PickRequest, forecast: Forecast, /) -> NDArray[np.float64] | None:
        """Return seconds by candidate; None: this prompt makes no difference."""
        ...


class CostTerm(NamedTuple):
    """Seconds that speak against each candidate of a tick."""

    fixed: NDArray[np.float64] | None = None
    """For every prompt alike: computed once a tick."""
    by_prompt: PromptSeconds | None = None
    """For each prompt: a few operations over columns."""
