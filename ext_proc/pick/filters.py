"""Every filter by its name in the settings. CONTRIBUTING.md lists the steps to a new one.

A filter returns the endpoints that pass, in the pool's order; None: all. Unknown is no evidence, so it
passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ext_proc.pick.candidates import Candidates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from ext_proc.pick.context import FilterContext

ISOLATED_SCORE: Final = 0.4
"""A GPU's health up to which its endpoints get no picks: isolated or drained."""
STALLED_FROM: Final = 0.5
TRUSTED_FROM: Final = 0.5
"""Below it an endpoint gets a trickle only."""
WHOLE_FROM: Final = 0.995
"""Trust comes in hundredths."""


class Filter(NamedTuple):
    """A rule that leaves endpoints out."""

    passes: Callable[[FilterContext], NDArray[np.bool_] | None]
    required: bool = False
    """If no endpoint passes, none is picked. Any other filter is skipped then."""
    least_share: float = 0.0
    """The filter is also skipped if it would leave less than this share of its input, 0 to 1."""
    tried: Callable[[FilterContext], NDArray[np.bool_]] | None = None
    """Endpoints that a request tries now and then, so that their recovery is seen: those that this filter
    alone leaves out, and those that pass and may get no requests for the same reason."""
    spare: bool = False
    """Endpoints that it alone leaves out are good enough for a retry, where others are too few."""


def model(context: FilterContext) -> NDArray[np.bool_] | None:
    """Endpoints that serve the model: they name it, or no model and take every one."""
    rows, size = context.shape.rows(context.model), len(context.shape.addresses)
    if rows.size == size:
        return None
    mask = np.zeros(size, np.bool_)
    mask[rows] = True
    return mask


def subset(context: FilterContext) -> NDArray[np.bool_] | None:
    """Endpoints that the gateway allows for the request (Gateway API Inference Extension, proposal 004)."""
    if context.subset is None:
        return None
    shape = context.shape
    mask = np.zeros(len(shape.endpoints), np.bool_)
    mask[context.subset.rows(shape.endpoints, lambda: shape.hosts)] = True
    return mask if shape.ranks == 1 else mask.repeat(shape.ranks)


def healthy(context: FilterContext) -> NDArray[np.bool_]:
    """Endpoints with a connection, a passing probe, and a GPU that is neither isolated nor drained."""
    columns = context.columns
    away: NDArray[np.bool_] = (columns.signal("reachable") == 0) | (columns.signal("ready") == 0)
    away |= columns.signal("gpu_health_score") <= ISOLATED_SCORE
    return ~away


def working(context: FilterContext) -> NDArray[np.bool_]:
    """Endpoints that do not hang with requests of ours."""
    return ~(context.columns.signal("stalled") > STALLED_FROM)


def trusted(context: FilterContext) -> NDArray[np.bool_]:
    """Endpoints with mostly good answers: neither failures, nor load shed with 429 or 503."""
    return ~(context.columns.signal("trust_ratio") < TRUSTED_FROM)


def in_doubt(context: FilterContext) -> NDArray[np.bool_]:
    """Endpoints without whole trust: they may get too few requests to show their recovery."""
    return context.columns.signal("trust_ratio") < WHOLE_FROM


def memory(context: FilterContext) -> NDArray[np.bool_]:
    """Endpoints outside the silent zone: memory so full that an engine is about to preempt or to fail.

    Its probes still answer then, so nothing else shows it. `weights.memory` says which memory counts.
    """
    return ~(context.columns.signal("memory_used_ratio") >= context.settings.cost.memory_pressure_full)


def context(context: FilterContext) -> NDArray[np.bool_] | None:
    """Endpoints whose context may hold the prompt."""
    if not context.too_short:
        return None
    return ~(context.columns.signal("context_tokens") <= context.too_short)


_CONTEXT: Final = Filter(context)
"""No setting leaves it out: other endpoints refuse the prompt for certain."""
FILTERS: Final[dict[str, Filter]] = {
    "model": Filter(model, required=True),
    "subset": Filter(subset, required=True),
    "healthy": Filter(healthy),
    "working": Filter(working),
    "trusted": Filter(trusted, tried=in_doubt),
    # If most are full, the whole pool is loaded, and costs tell which is worse off.
    "memory": Filter(memory, least_share=0.5, spare=True),
}


def filtered(context: FilterContext, names: Iterable[str]) -> Candidates | None:
    """Apply filters in their order, each to the output of the one before; None: no endpoint is left."""
    chosen = np.arange(len(context.shape.addresses))
    left_out = spare = chosen[:0]
    untrusted = np.zeros(chosen.size, np.bool_)
    rules = [_CONTEXT, *(FILTERS[name] for name in names)]
    # The prompt has to fit where its model is served, and a loaded endpoint comes before one that refuses.
    for rule in sorted(rules, key=lambda rule: not rule.required):
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
    # If all are in doubt, cost decides.
    in_doubt_rows = chosen[:0] if among.all() else chosen[among]
    return Candidates.of(context.shape, context.columns, chosen, left_out, spare, in_doubt_rows)
