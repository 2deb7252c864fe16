"""How far an endpoint is from the Envoys that ask this worker, as the settings say where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.cost_terms.term import CostTerm

if TYPE_CHECKING:
    from ext_proc.pick.context import TickContext
    from fleet.endpoint import Locality
    from fleet.settings.picks import PickSettings


def bind(context: TickContext) -> CostTerm:
    """Bind to a tick. Where either side does not say where it stands, that is no evidence."""
    if not context.settings.locality.region and not context.settings.locality.zone:
        return CostTerm()
    seconds = np.array([_seconds(place, context.settings) for place in context.candidates.shape.localities])
    return CostTerm(seconds[context.candidates.rows])


def _seconds(place: Locality, settings: PickSettings) -> float:
    here, cost = settings.locality, settings.cost
    if here.region and place.region and here.region != place.region:
        return cost.other_region_seconds
    if here.zone and place.zone and here.zone != place.zone:
        return cost.other_zone_seconds
    return 0.0
