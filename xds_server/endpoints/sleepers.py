"""Engines that sleep: their page, models and health are well, and requests there hang or fail. I/O-free.

vLLM's sleep mode gives weights and KV cache away until somebody wakes the engine. So such an engine gets
nothing new, as one that is leaving, until its page tells that it is awake. Where nobody else of its pool
would serve, it is served as if it did not sleep: some wake by a request, and Envoy alone would have sent one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xds_server.endpoints.fitness import left_out

if TYPE_CHECKING:
    from fleet.endpoint import Membership

logger = logging.getLogger(__name__)


class Sleepers:
    """Who sleeps now; what changes is logged."""

    def __init__(self) -> None:
        self.now: frozenset[str] = frozenset()

    def update(
        self,
        membership: Membership,
        leaving: frozenset[str],
        asleep: frozenset[str],
        unfit: frozenset[str],
    ) -> frozenset[str]:
        """Return the endpoints that are to get nothing new because they sleep.

        Those in `leaving` get nothing new anyway; those in `unfit` would not serve.
        """
        out = left_out(membership.pools, asleep, unfit, leaving)
        if out != self.now:
            for address in sorted(out - self.now):
                logger.info("%s is asleep (vllm:engine_sleep_state): no new requests until it wakes", address)
            for address in sorted(self.now - out):
                logger.info("%s gets requests again: it is awake, or nobody else is left", address)
            self.now = out
        return out
