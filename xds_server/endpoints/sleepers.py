"""Engines that sleep: their page, models and health look good, and requests hang or fail. I/O-free.

vLLM's sleep mode frees weights and KV cache until a client wakes the engine. So a sleeping engine gets no new
requests until its page says that it is awake. If no other engine of its pool would serve, it is served as if
it were awake: some wake by a request, and Envoy alone would have sent one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from xds_server.endpoints.fitness import left_out

if TYPE_CHECKING:
    from fleet.endpoint import Membership

logger = logging.getLogger(__name__)


class Sleepers:
    """The endpoints that sleep now; changes are logged."""

    def __init__(self) -> None:
        self.now: frozenset[str] = frozenset()

    def update(
        self,
        membership: Membership,
        leaving: frozenset[str],
        asleep: frozenset[str],
        unfit: frozenset[str],
    ) -> frozenset[str]:
        """Return the addresses that get no new requests because they sleep.

        Addresses in `leaving` get none anyway; those in `unfit` would not serve.
        """
        out = left_out(membership.pools, asleep, unfit, leaving)
        if out != self.now:
            for address in sorted(out - self.now):
                logger.info("%s is asleep (vllm:engine_sleep_state): no new requests until it wakes", address)
            for address in sorted(self.now - out):
                logger.info("%s gets requests again: it is awake, or nobody else is left", address)
            self.now = out
        return out
