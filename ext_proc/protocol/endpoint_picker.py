"""What the endpoint-picker protocol demands of every answer, whatever our own choice says.

A gateway that allows only some endpoints must never be sent to another one, and a gateway that cannot choose
by itself must always be told somebody. Where our own choice names nobody then, weights name one here; where
nobody is there, the request is refused with 503, as the protocol wants it. Neither holds in our own Envoy
configuration, which allows all and chooses by EDS weights.
"""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from ext_proc.pick import Meant, Pick, Reason, Refusal
from ext_proc.protocol.request import model_in_path
from ext_proc.protocol.subset import subset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ext_proc.protocol.request import RouteRequest
    from fleet.endpoint import Membership
    from fleet.store import FleetView

NOT_READY: Final = Refusal(503, "None of the endpoints for this request is ready.", 1.0)
_KEPT: Final = 64
"""Lists of weights that are kept between two views: one for each pool and set of allowed endpoints."""


class ViewSource(Protocol):
    """Whatever knows the newest view of the fleet."""

    @property
    def view(self) -> FleetView | None:
        """The newest view; None until the first full sync."""
        ...


def _meant(membership: Membership, meant: Meant, allowed: tuple[str, ...] | None) -> Iterable[str]:
    """Return who is meant and allowed; where that is nobody, those allowed of the same pools, then of any.

    The pools are the one that is named, if it is ours, else those that name the model, else all. An endpoint
    that names no model takes every one.
    """
    pools = [pool for pool in membership.pools if pool.name == meant.pool] or membership.pools
    model = meant.model
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
    """Endpoints that may be named, with the running sums of their weights."""

    addresses: tuple[str, ...]
    sums: tuple[int, ...]

    @classmethod
    def of(cls, view: FleetView, meant: Meant, allowed: tuple[str, ...] | None) -> _Weighted:
        """Take those that are meant and allowed, and get requests by weight."""
        found = {
            address: weight
            for address in _meant(view.membership, meant, allowed)
            if (weight := view.weights.get(address, 0) if view.weights else 1) > 0
        }
        return cls(tuple(found), tuple(accumulate(found.values())))

    def draw(self, draw: Callable[[], float], count: int) -> tuple[str, ...]:
        """Draw up to `count` different ones by weight; one drawn again stands for its neighbour."""
        total, size, drawn = self.sums[-1], len(self.addresses), list[str]()
        for _ in range(min(count, size)):
            row = bisect(self.sums, draw() * total)
            while (address := self.addresses[row % size]) in drawn:
                row += 1
            drawn.append(address)
        return tuple(drawn)


class Duty:
    """Holds picks to the protocol. Single-threaded."""

    def __init__(self, source: ViewSource, draw: Callable[[], float]) -> None:
        """`draw` is uniform in [0, 1)."""
        self._source = source
        self._draw = draw
        self._view: FleetView | None = None
        self._kept: dict[tuple[Meant, tuple[str, ...] | None], _Weighted] = {}
        self._membership: Membership | None = None
        self._models: frozenset[str] = frozenset()

    def fulfil(self, pick: Pick, request: RouteRequest, fallbacks: int) -> Pick:
        """Make a pick of only allowed endpoints, with at most `fallbacks` after the first, or a refusal."""
        if pick.refusal is not None:
            return pick
        endpoints = pick.endpoints
        if request.subset is not None:
            admits = subset(request.subset).admits
            endpoints = tuple(address for address in endpoints if admits(address))
        if endpoints:
            # What was predicted, and what is warm, holds for the first only.
            same = endpoints[0] == pick.endpoints[0]
            return replace(pick, endpoints=endpoints) if same else _named(pick, endpoints)
        meant = pick.meant or Meant(request.cluster, model_in_path(request.path) or None)
        weighted = self._weighted(meant, request.subset)
        if weighted is None or not weighted.addresses:
            return replace(Pick.refuse(Reason.NOT_READY, NOT_READY, pick.prefix), trace=pick.trace)
        return _named(pick, weighted.draw(self._draw, 1 + fallbacks))

    def _weighted(self, meant: Meant, allowed: tuple[str, ...] | None) -> _Weighted | None:
        view = self._source.view
        if view is None:
            return None
        if view is not self._view or len(self._kept) >= _KEPT:
            self._kept.clear()
            self._view = view
        key = (self._known(meant, view.membership), allowed)
        if key not in self._kept:
            self._kept[key] = _Weighted.of(view, *key)
        return self._kept[key]

    def _known(self, meant: Meant, membership: Membership) -> Meant:
        """Let all models that no endpoint names be one, so that clients cannot fill what is kept."""
        if membership is not self._membership:
            ends = (endpoint for pool in membership.pools for endpoint in pool.endpoints)
            self._models = frozenset(model for endpoint in ends for model in endpoint.models)
            self._membership = membership
        known = meant.model is None or meant.model in self._models
        return meant if known else meant._replace(model="")


def _named(pick: Pick, endpoints: tuple[str, ...]) -> Pick:
    return Pick(endpoints, Reason.NAMED, prefix=pick.prefix, trace=pick.trace)
