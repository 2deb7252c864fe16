"""How far an endpoint is from the Envoys that ask this worker, as the settings say where they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ext_proc.pick.scorers.scorer import Scored

if TYPE_CHECKING:
    from ext_proc.pick.scene import Scene
    from fleet.endpoint import Locality
    from fleet.settings.picks import PickSettings


def score(scene: Scene) -> Scored:
    """Bind to a tick. Where either side does not say where it stands, that is no evidence."""
    if not scene.settings.locality.region and not scene.settings.locality.zone:
        return Scored()
    seconds = np.array([_seconds(place, scene.settings) for place in scene.candidates.shape.localities])
    return Scored(seconds[scene.candidates.rows])


def _seconds(place: Locality, settings: PickSettings) -> float:
    here, cost = settings.locality, settings.cost
    if here.region and place.region and here.region != place.region:
        return cost.other_region_seconds
    if here.zone and place.zone and here.zone != place.zone:
        return cost.other_zone_seconds
    return 0.0
