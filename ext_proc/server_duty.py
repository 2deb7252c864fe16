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

from ext_proc.pick import Pick, Reason, Refusal
from ext_proc.subset import subset

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.request import RouteRequest
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


@dataclass(frozen=True, slots=True)
class _Weighted:
    """Endpoints that may be named, with the running sums of their weights."""

    addresses: tuple[str, ...]
    sums: tuple[int, ...]

    @classmethod
    def of(cls, view: FleetView, cluster: str, allowed: tuple[str, ...] | None) -> _Weighted:
        """Take those that are allowed and get requests by weight: of the cluster's pool, if it is one."""
        pools = [pool for pool in view.membership.pools if pool.name == cluster] or view.membership.pools
        admits = None if allowed is None else subset(allowed).admits
        found = {
            endpoint.address: weight
            for pool in pools
            for endpoint in pool.endpoints
            if (weight := view.weights.get(endpoint.address, 0) if view.weights else 1) > 0
            and (admits is None or admits(endpoint.address))
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
        self._kept: dict[tuple[str, tuple[str, ...] | None], _Weighted] = {}

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
        weighted = self._weighted(request.cluster, request.subset)
        if weighted is None or not weighted.addresses:
            return replace(Pick.refuse(Reason.NOT_READY, NOT_READY, pick.prefix), trace=pick.trace)
        return _named(pick, weighted.draw(self._draw, 1 + fallbacks))

    def _weighted(self, cluster: str, allowed: tuple[str, ...] | None) -> _Weighted | None:
        view = self._source.view
        if view is None:
            return None
        if view is not self._view or len(self._kept) >= _KEPT:
            self._kept.clear()
            self._view = view
        key = (cluster, allowed)
        if key not in self._kept:
            self._kept[key] = _Weighted.of(view, cluster, allowed)
        return self._kept[key]


def _named(pick: Pick, endpoints: tuple[str, ...]) -> Pick:
    return Pick(endpoints, Reason.NAMED, prefix=pick.prefix, trace=pick.trace)
