"""Which endpoints Envoys are told not to use. Overload is a weight; only a refused connection is this."""

from __future__ import annotations

from math import floor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fleet.load import Load

_ROUNDING: Final = 1e-9
"""0.29 * 100 is 28.999999999999996 and means 29."""


def unhealthy(addresses: Sequence[str], loads: Mapping[str, Load], max_share: float) -> frozenset[str]:
    """Return the endpoints of one pool that refused a connection; `loads` holds fresh signals only.

    At most `max_share` of the pool, rounded down, are named: when nearly everything looks dead, the view is
    more likely wrong than the fleet. Which ones is decided by address, so replicas of this service agree.
    """
    refused = [
        address
        for address in addresses
        if (load := loads.get(address)) is not None
        and (reachable := load.reachable) is not None
        and reachable.value == 0
    ]
    most = floor(len(addresses) * max_share + _ROUNDING)
    return frozenset(sorted(refused)[:most])
