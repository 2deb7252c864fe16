"""The endpoint-picker protocol's demands on every result, in addition to our own pick.

A gateway that allows only some endpoints must get no other one, and a gateway without a load balancer must
always get an endpoint. Without a pick, this module draws an endpoint by weight; without an endpoint, it
refuses the request with 503, as the protocol demands. Our own Envoy configuration needs neither: it allows
all endpoints and balances by EDS weights.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec

from ext_proc.pick.result import PickResult, Reason, Refusal
from ext_proc.pick.subset import subset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleet.endpoint import Membership
    from fleet.store import FleetView

NOT_READY: Final = Refusal(503, "None of the endpoints for this request is ready.", 1.0)
_MOST_CACHED: Final = 64
"""Limit of cached lists of weights per view: one for each pool, model and set of endpoints."""


class ViewSource(Protocol):
    """A source of the newest view of the fleet, such as a `FleetStore`."""

    @property
    def view(self) -> FleetView | None:
        """The newest view; None until the first full sync."""
        ...


class Target(NamedTuple):
    """The engines that a request is for."""

    pool: str = ""
    """Empty: unknown."""
    model: str | None = None
    """Empty: the request names none; None: unknown."""


def _named_endpoints(
    membership: Membership, target: Target, allowed: tuple[str, ...] | None
) -> Iterable[str]:
    """Return the target's allowed endpoints; without any, the allowed ones of its pools, then of all.

    Its pools are the named one, if it is ours, otherwise those with the model, otherwise all. An endpoint
    without models serves every model.
    """
    pools = [pool for pool in membership.pools if pool.name == target.pool] or membership.pools
    model = target.model
    if model is not None:
        pools = [pool for pool in pools if any(model in end.models for end in pool.endpoints)] or pools
    ends = [end for pool in pools for end in pool.endpoints]
    if allowed is not None:
        admits = subset(allowed).admits
        ends = [end for end in ends if admits(end.address)]
        if not ends:
            return filter(admits, membership.by_address)
    serving = [end for end in ends if model is None or not end.models or model in end.models]
    return [end.address for end in serving or ends]


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Endpoints with the running sums of their weights."""

    addresses: tuple[str, ...]
    sums: tuple[int, ...]

    @classmethod
    def of(cls, view: FleetView, target: Target, allowed: tuple[str, ...] | None) -> _Weighted:
        """Return the target's allowed endpoints with a weight."""
        weights = {
            address: weight
            for address in _named_endpoints(view.membership, target, allowed)
            if (weight := view.weights.get(address, 0) if view.weights else 1) > 0
        }
        return cls(tuple(weights), tuple(accumulate(weights.values())))

    def draw(self, draw: Callable[[], float], count: int) -> tuple[str, ...]:
        """Draw up to `count` endpoints by weight; a repeated draw takes the next one."""
        total, size, drawn = self.sums[-1], len(self.addresses), list[str]()
        for _ in range(min(count, size)):
            row = bisect(self.sums, draw() * total)
            while (address := self.addresses[row % size]) in drawn:
                row += 1
            drawn.append(address)
        return tuple(drawn)


class EndpointPickerProtocol:
    """Changes results so that they keep the protocol. Single-threaded."""

    def __init__(self, source: ViewSource, draw: Callable[[], float]) -> None:
        """`draw` is uniform in [0, 1)."""
        self._source = source
        self._draw = draw
        self._view: FleetView | None = None
        self._cache: dict[tuple[Target, tuple[str, ...] | None], _Weighted] = {}
        self._membership: Membership | None = None
        self._models: frozenset[str] = frozenset()

    def enforce(
        self, result: PickResult, target: Target, allowed: tuple[str, ...] | None, fallbacks: int
    ) -> PickResult:
        """Return a result with allowed endpoints only and at most `fallbacks` after the first, or a refusal.

        A result that keeps the protocol is returned as it is.
        """
        if result.refusal is not None:
            return result
        endpoints = result.endpoints
        if allowed is not None:
            admits = subset(allowed).admits
            endpoints = tuple(address for address in endpoints if admits(address))
        if endpoints:
            if endpoints == result.endpoints:
                return result
            if endpoints[0] == result.endpoints[0]:
                return msgspec.structs.replace(result, endpoints=endpoints)
            # Prediction and warm blocks are those of the first endpoint.
            return PickResult(endpoints, Reason.NAMED, prefix=result.prefix)
        weighted = self._weighted(target, allowed)
        if weighted is None or not weighted.addresses:
            return PickResult.refuse(Reason.NOT_READY, NOT_READY, result.prefix)
        return PickResult(weighted.draw(self._draw, 1 + fallbacks), Reason.NAMED, prefix=result.prefix)

    def _weighted(self, target: Target, allowed: tuple[str, ...] | None) -> _Weighted | None:
        view = self._source.view
        if view is None:
            return None
        if view is not self._view or len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
            self._view = view
        key = (self._without_unknown_model(target, view.membership), allowed)
        if key not in self._cache:
            self._cache[key] = _Weighted.of(view, *key)
        return self._cache[key]

    def _without_unknown_model(self, target: Target, membership: Membership) -> Target:
        """Treat all models without an endpoint as one, so that clients cannot fill the cache."""
        if membership is not self._membership:
            ends = (endpoint for pool in membership.pools for endpoint in pool.endpoints)
            self._models = frozenset(model for endpoint in ends for model in endpoint.models)
            self._membership = membership
        if target.model is None or target.model in self._models:
            return target
        return target._replace(model="")
