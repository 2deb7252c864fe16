"""Engines that sleep: their page, models and health are well, and requests there hang or fail. I/O-free.

vLLM's sleep mode gives weights and KV cache away until somebody wakes the engine. So such an engine gets
nothing new, as one that is leaving, until its page tells that it is awake. Where all of a pool's engines
sleep, they are served as if none did: some wake by a request, and Envoy alone would have sent one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.endpoint import Membership
    from fleet.load import Load, Signal

logger = logging.getLogger(__name__)


class Sleepers:
    """Who sleeps now; what changes is logged."""

    def __init__(self) -> None:
        self.now: frozenset[str] = frozenset()

    def update(
        self, membership: Membership, leaving: frozenset[str], loads: Mapping[str, Load], oldest: float
    ) -> frozenset[str]:
        """Return the endpoints that are to get nothing new because they sleep.

        `loads` is what pages tell, of which signals observed before `oldest` are unknown; unknown is awake.
        Those in `leaving` get nothing new anyway.
        """
        asleep = frozenset(address for address, load in loads.items() if _is_zero(load.awake, oldest))
        if asleep:
            asleep = _but_those_alone(asleep, membership, leaving, loads, oldest)
        if asleep != self.now:
            for address in sorted(asleep - self.now):
                logger.info("%s sleeps: it gets nothing new until its page tells that it is awake", address)
            for address in sorted(self.now - asleep):
                logger.info("%s is not left out for sleeping any more", address)
            self.now = asleep
        return asleep


def _but_those_alone(
    asleep: frozenset[str],
    membership: Membership,
    leaving: frozenset[str],
    loads: Mapping[str, Load],
    oldest: float,
) -> frozenset[str]:
    """Leave out those of pools in which nobody else is there."""
    found: set[str] = set()
    for pool in membership.pools:
        there = {endpoint.address for endpoint in pool.endpoints} - leaving
        awake = there - asleep
        if any(not _is_zero(loads[a].reachable if a in loads else None, oldest) for a in awake):
            found |= there & asleep
    return frozenset(found)


def _is_zero(held: Signal | None, oldest: float) -> bool:
    return held is not None and held.value <= 0 and held.observed_at >= oldest
