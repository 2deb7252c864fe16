"""Cost terms by their names in the settings. A new one is one file and one line here.

All of them return seconds that speak against an endpoint, below 0 what speaks for it. Seconds add up, and
each can be measured by itself; ranks would have to be traded against each other in every situation again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ext_proc.pick.cost_terms import (
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ext_proc.pick.context import TickContext
    from ext_proc.pick.cost_terms.term import CostTerm, PromptSeconds
    from ext_proc.pick.forecast import Forecast
    from ext_proc.pick.request import PickRequest
    from fleet.settings.picks import ScorerSettings

COST_TERMS: Final[dict[str, Callable[[TickContext], CostTerm]]] = {
    "first_token": first_token.bind,
    "decode_load": decode_load.bind,
    "memory": memory.bind,
    "trust": trust.bind,
    "pace": pace.bind,
    "topology": topology.bind,
    "adapter": adapter.bind,
    "session": session.bind,
    "leading": leading.bind,
}
"""Each is bound once a tick."""


class Costs:
    """The weighted sum over some terms, bound to the candidates of one tick."""

    def __init__(self, context: TickContext, terms: Iterable[ScorerSettings]) -> None:
        self.fixed: NDArray[np.float64] = np.zeros(len(context.candidates.addresses))
        """The part that is the same for every prompt."""
        self._by_prompt: list[tuple[float, PromptSeconds]] = []
        for entry in terms:
            if not entry.weight:
                continue
            fixed, by_prompt = COST_TERMS[entry.name](context)
            if fixed is not None:
                self.fixed = self.fixed + entry.weight * fixed
            if by_prompt is not None:
                self._by_prompt.append((entry.weight, by_prompt))

    def of(self, request: PickRequest, forecast: Forecast) -> NDArray[np.float64]:
        """Return what a prompt costs on each candidate, in seconds."""
        cost = self.fixed
        for weight, by_prompt in self._by_prompt:
            seconds = by_prompt(request, forecast)
            if seconds is not None:
                cost = cost + (seconds if weight == 1.0 else weight * seconds)
        return cost
