"""What filters and scorers are given of a pool at one tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ext_proc.pick.adapters import Adapters
    from ext_proc.pick.backlog import Backlog
    from ext_proc.pick.candidates import Candidates, LoadColumns, PoolShape
    from ext_proc.pick.demand import Demand
    from ext_proc.pick.pace import Judgement
    from ext_proc.pick.quota import Quota
    from ext_proc.protocol.subset import Subset
    from fleet.settings.picks import PickSettings


class Fleet(NamedTuple):
    """A whole pool, before anybody is left out: what a filter sees."""

    shape: PoolShape
    columns: LoadColumns
    settings: PickSettings
    model: str
    subset: Subset | None = None
    """Whom the gateway allows; None: everybody."""


class Scene(NamedTuple):
    """Those who may be chosen, and what is remembered of them: what a scorer sees."""

    candidates: Candidates
    backlog: Backlog
    adapters: Adapters
    demand: Demand
    """Of all that is asked of these endpoints."""
    paces: Judgement | None
    """By the pool's rows."""
    settings: PickSettings
    apart_share: float = 0.0
    """Share of the pool's requests that other workers send without telling where, 0 to 1."""
    quota: Quota | None = None
    """What overridden endpoints are owed, by the pool's rows; None: no weight is overridden."""
