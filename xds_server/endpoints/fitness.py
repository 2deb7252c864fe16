"""Endpoints that would not serve, and which of them get no new requests: never the last one of a model. Pure.

vLLM's sleep mode frees weights and KV cache until a client wakes the engine: its page, models and health look
good, and requests hang or fail. So a sleeping engine gets no new requests until its page says that it is
awake. If no other engine of its pool would serve, it is served as if it were awake: some wake by a request,
and Envoy alone would have sent one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fleet.endpoint import Membership, Pool
    from fleet.signals import SignalTable

logger = logging.getLogger(__name__)


def exclusions(
    pools: Iterable[Pool],
    candidates: frozenset[str],
    unfit: frozenset[str],
    leaving: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """Return the addresses of `candidates` that get no new requests.

    A candidate is left out only while other endpoints of its pool serve each of its models: endpoints that
    are no candidates, do not leave, and are not in `unfit`. An endpoint without models serves any model.
    """
    out: set[str] = set()
    for pool in pools if candidates else ():
        there = [endpoint for endpoint in pool.endpoints if endpoint.address not in leaving]
        stay = [e.models for e in there if e.address not in candidates and e.address not in unfit]
        any_model, models = not all(stay), {model for names in stay for model in names}
        out.update(
            endpoint.address
            for endpoint in (there if stay else ())
            if endpoint.address in candidates and (any_model or models.issuperset(endpoint.models))
        )
    return frozenset(out)


def asleep_of(pages: SignalTable, oldest: float) -> frozenset[str]:
    """Return the addresses that sleep; values from before `oldest` are unknown and count as awake."""
    return _where(pages, "awake", 0.0, oldest)


def unfit_of(
    pages: SignalTable,
    stalls: SignalTable,
    not_ready: Collection[str],
    oldest: float,
) -> frozenset[str]:
    """Return the addresses that would not serve: unreachable or asleep by `pages`, stalled, or not ready.

    Unknown values, and values from before `oldest`, have no effect.
    """
    unreachable = _where(pages, "reachable", 0.0, oldest)
    return asleep_of(pages, oldest).union(unreachable, _where(stalls, "stalled", 1.0, oldest), not_ready)


def _where(signals: SignalTable, name: str, value: float, oldest: float) -> frozenset[str]:
    columns = np.flatnonzero((signals[name] == value) & (signals.at(name) >= oldest))
    return frozenset(signals.addresses[column] for column in columns.tolist())


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
        out = exclusions(membership.pools, asleep, unfit, leaving)
        if out != self.now:
            for address in sorted(out - self.now):
                logger.info("%s is asleep (vllm:engine_sleep_state): no new requests until it wakes", address)
            for address in sorted(self.now - out):
                logger.info("%s gets requests again: it is awake, or no other endpoint is left", address)
            self.now = out
        return out
