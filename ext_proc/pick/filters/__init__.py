"""Every filter by its name in the settings. A new one is one file and one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ext_proc.pick.candidates import Candidates
from ext_proc.pick.filters import healthy, memory, model, subset, trusted, working

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext


class Filter(NamedTuple):
    """A rule that leaves endpoints out."""

    passes: Callable[[FilterContext], NDArray[np.bool_] | None]
    """Which endpoints pass, in the pool's order; None: all. What is unknown is no evidence, so it passes."""
    required: bool = False
    """When no endpoint passes, none is picked. Any other filter is skipped then."""
    least_share: float = 0.0
    """The filter is also skipped when it would leave less than this share of its input, 0 to 1."""
    tried: Callable[[FilterContext], NDArray[np.bool_]] | None = None
    """Endpoints that a request tries now and then, so that their recovery is seen: those that this filter
    alone leaves out, and of those that pass the ones that may get nothing for the same reason."""
    spare: bool = False
    """Endpoints that it alone leaves out are good enough for a retry, where others are too few."""


FILTERS: Final[dict[str, Filter]] = {
    "model": Filter(model.passes, required=True),
    "subset": Filter(subset.passes, required=True),
    "healthy": Filter(healthy.passes),
    "working": Filter(working.passes),
    "trusted": Filter(trusted.passes, tried=trusted.in_doubt),
    # When most are full, that is the pool's load, and costs tell which is worse off.
    "memory": Filter(memory.passes, least_share=0.5, spare=True),
}


def filtered(context: FilterContext, names: Iterable[str]) -> Candidates | None:
    """Apply filters in their order, each to what the ones before it left; None: no endpoint is left."""
    chosen = np.arange(len(context.shape.addresses))
    left_out = spare = chosen[:0]
    untrusted = np.zeros(chosen.size, np.bool_)
    for name in names:
        rule = FILTERS[name]
        passes = rule.passes(context)
        if passes is None:
            continue
        if not rule.tried and not rule.spare:
            left_out, spare = left_out[passes[left_out]], spare[passes[spare]]
        if rule.tried:
            untrusted = rule.tried(context)
        among = passes[chosen]
        left = int(np.count_nonzero(among))
        if left == chosen.size:
            continue
        if not rule.required and (not left or left < rule.least_share * chosen.size):
            continue
        if rule.tried:
            left_out = chosen[~among]
        elif rule.spare:
            spare = chosen[~among]
        chosen = chosen[among]
    if not chosen.size:
        return None
    among = untrusted[chosen]
    # Where all are in doubt alike, cost decides.
    in_doubt = chosen[:0] if among.all() else chosen[among]
    return Candidates.of(context.shape, context.columns, chosen, left_out, spare, in_doubt)
