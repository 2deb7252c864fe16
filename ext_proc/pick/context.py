"""The input of filters and cost terms: a pool at one tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ext_proc.pick.adapters import Adapters
    from ext_proc.pick.backlog import Backlog
    from ext_proc.pick.candidates import Candidates, LoadColumns, PoolShape
    from ext_proc.pick.demand import Demand
    from ext_proc.pick.pace import Judgement
    from ext_proc.pick.quota import Quota
    from ext_proc.pick.subset import Subset
    from fleet.settings.picks import PickSettings


class FilterContext(NamedTuple):
    """A whole pool, before any endpoint is left out."""

    shape: PoolShape
    columns: LoadColumns
    settings: PickSettings
    model: str
    subset: Subset | None = None
    """The endpoints that the gateway allows; None: all."""
    too_short: float = 0.0
    """See `PickRequest.too_short`."""


class TickContext(NamedTuple):
    """The candidates with their history: the input of cost terms and pickers."""

    candidates: Candidates
    backlog: Backlog
    adapters: Adapters
    demand: Demand
    """Of all requests for these endpoints."""
    paces: Judgement | None
    """By the pool's rows."""
    settings: PickSettings
    apart_share: float = 0.0
    """Share of the pool's requests from other workers that do not publish their picks, 0 to 1."""
    request_seconds: float = 0.0
    """What one request in flight adds to the cost."""
    quota: Quota | None = None
    """Credit of overridden endpoints, by the pool's rows; None: no weight is overridden."""
