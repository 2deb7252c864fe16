"""Which endpoints Envoys must not use. Overload is a weight; an endpoint that cannot answer is unhealthy."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final

import numpy as np

from xds_server.weights.faults import isolated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xds_server.weights.columns import Columns

_ROUNDING: Final = 1e-9
"""0.29 * 100 is 28.999999999999996 and means 29."""
_DRAINED_SCORE: Final = 0.05
_FINE: Final = 3


def unhealthy(addresses: Sequence[str], columns: Columns, max_share: float) -> frozenset[str]:
    """Return the endpoints of one pool that are to get no request; `columns` holds fresh signals only.

    The worst come first: a port that gave no connection, a probe that has to pass and a GPU that is drained,
    then an engine that hangs, then a GPU that is isolated. At most `max_share` of the pool, rounded down, are
    named: when nearly everything looks dead, the view is more likely wrong than the fleet. Nor is an endpoint
    named that is no worse than the best of the pool: which of equals would serve is unknown. Among others the
    address decides, so replicas of this service agree.
    """
    if not columns.faulty.any():
        return frozenset()
    signals, health = columns.signals, columns.signals["gpu_health_score"]
    rank = np.full(len(columns), _FINE)
    rank[isolated(health)] = 2
    rank[signals["stalled"] > 0] = 1
    rank[(signals["reachable"] == 0) | (signals["ready"] == 0) | (health <= _DRAINED_SCORE)] = 0
    marked = np.flatnonzero(rank < rank.max(initial=0)).tolist()
    most = floor(len(addresses) * max_share + _ROUNDING)
    worst = sorted(marked, key=lambda row: (rank[row], addresses[row]))
    return frozenset(addresses[row] for row in worst[:most])
