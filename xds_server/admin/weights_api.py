"""The API of weights: operators see, recompute and override them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fleet.service.admin import ApiError
from xds_server.admin.decisions import moment, shown_verdict
from xds_server.state.override import DRAINED, MAX_OVERRIDES, MAX_SECONDS
from xds_server.weights.border import MAX_WEIGHT, MIN_WEIGHT
from xds_server.weights.topology import Places, Topology, nearer_weighs_more

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from fleet.endpoint import Locality, Membership, Pool
    from fleet.settings import TopologySettings
    from xds_server.snapshot.snapshot import NodeGroup
    from xds_server.state.override import OverrideBook, OverrideFile
    from xds_server.weights.verdict import SignalReading, Verdict

MAX_PLACES: Final = 16
"""Places of Envoys whose factors are shown."""


@dataclass(frozen=True)
class WeightSources:
    """Sources of the view; all of one moment."""

    verdicts: Callable[[], Mapping[str, Verdict]]
    verdict: Callable[[str], Verdict | None]
    signals: Callable[[str], Mapping[str, SignalReading | None]]
    """The signals behind the weight of one endpoint."""
    membership: Callable[[], Membership | None]
    leaving: Callable[[], Collection[str]]
    """Addresses that finish their requests and get no new ones."""
    version: Callable[[], str | None]
    """Of the endpoints, for Envoys without a group."""
    recompute: Callable[[], None]
    """Compute and publish now; raises what a tick raises."""
    groups: Callable[[], Sequence[NodeGroup]] = tuple
    """Groups of Envoys with weights of their own."""
    topology: Callable[[], TopologySettings] | None = None


class WeightsApi:
    """`GET /api/v1/weights` and `POST /api/v1/update_weights`."""

    def __init__(
        self, sources: WeightSources, book: OverrideBook, file: OverrideFile, wall: Callable[[], float]
    ) -> None:
        self._sources = sources
        self._book = book
        self._file = file
        self._wall = wall

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Path to view."""
        return {"/api/v1/weights": self.weights}

    def actions(self) -> Mapping[str, Callable[[Any], Awaitable[Any]]]:
        """Path to handler of a JSON body."""
        return {"/api/v1/update_weights": self.update}

    def weights(self) -> dict[str, Any]:
        """Every endpoint with its verdict, the end of its override, and its weight by place of Envoys.

        A drained endpoint is not weighed. Where all others of its pool are drained too, the drain is not in
        force (false); where no endpoint has the address any more, it is null.
        """
        membership, leaving = self._sources.membership(), self._sources.leaving()
        near: dict[str, Mapping[str, float]] = {}
        for pool in () if membership is None else membership.pools:
            factors = self._factors(pool)
            near |= {endpoint.address: factors.get(endpoint.locality, {}) for endpoint in pool.endpoints}
        entries = {
            address: self._shown(verdict, near.get(address, {}))
            for address, verdict in self._sources.verdicts().items()
        }
        drained = [
            {
                "endpoint": address,
                "until": None if (until := self._book.until(address)) is None else moment(until),
                "in_force": True if address in leaving else False if address in entries else None,
            }
            for address in sorted(self._book.drained(self._wall()))
        ]
        return {"version": self._sources.version(), "weights": entries, "drained": drained}

    def endpoint(self, address: str) -> dict[str, Any] | None:
        """Return what `weights` has of one endpoint, and the signals behind it; None: it is not weighed."""
        verdict, membership = self._sources.verdict(address), self._sources.membership()
        if verdict is None:
            return None
        near: Mapping[str, float] = {}
        if membership is not None and (endpoint := membership.by_address.get(address)) is not None:
            pool = next(pool for pool in membership.pools if pool.name == endpoint.pool)
            near = self._factors(pool).get(endpoint.locality, {})
        signals = {
            name: None if reading is None else reading._asdict()
            for name, reading in self._sources.signals(address).items()
        }
        return {**self._shown(verdict, near), "signals": signals}

    def _shown(self, verdict: Verdict, near: Mapping[str, float]) -> dict[str, Any]:
        """Return a verdict with the end of its override; `near` has the factor by place of Envoys."""
        until = self._book.until(verdict.address)
        weights: list[int] = []
        if verdict.weight is not None and near:
            weights = nearer_weighs_more(np.array(verdict.weight), np.array(list(near.values()))).tolist()
        return {
            **shown_verdict(verdict),
            "overridden_until": None if until is None else moment(until),
            "by_place": near,
            "weight_by_place": dict(zip(near, weights, strict=False)),
        }

    async def update(self, body: Any) -> dict[str, Any]:
        """Recompute now; with `weights`, override first.

        A number sets, 0 drains, null clears, null for all clears all.

        Raises:
            ApiError: the body is wrong; nothing has changed.
        """
        now = self._wall()
        overridden = self._book.active(now).keys() | self._book.drained(now)
        addresses = self._sources.verdicts().keys() | self._book.drained(now)
        if self._sources.version() is None or not addresses:
            raise ApiError("no weights are served yet", status=503)
        if not isinstance(body, dict):
            raise ApiError("allowed: an object, {} to recompute")
        for field in body:
            if field not in ("weights", "expires_seconds"):
                raise ApiError("unknown; allowed: weights, expires_seconds", path=str(field)[:100])
        saved: bool | None = None
        if "weights" in body:
            weights = _checked(body["weights"], addresses, overridden)
            sets = {address: weight for address, weight in weights.items() if weight is not None}
            expires_at = now + _lifetime(body, needed=bool(sets))
            if len(self._book) + len(sets) > MAX_OVERRIDES:
                raise ApiError(f"more than {MAX_OVERRIDES} overrides at once", path="weights")
            self._book.clear(address for address, weight in weights.items() if weight is None)
            self._book.set(sets, expires_at)
            saved = await self._file.save()
        elif "expires_seconds" in body:
            raise ApiError("allowed only with weights", path="expires_seconds")
        self._sources.recompute()
        answer = self.weights()
        return answer if saved is None else {**answer, "kept_over_restart": saved}

    def _factors(self, pool: Pool) -> dict[Locality, dict[str, float]]:
        """Return the factors of nearness in one pool: locality of endpoints to place of Envoys to factor.

        Only proportions count: where a place is as far from all endpoints of the pool, the factor is 1.
        """
        topology = self._sources.topology
        places = list(dict.fromkeys(group.locality for group in self._sources.groups()))[:MAX_PLACES]
        if topology is None or not places:
            return {}
        localities = list(dict.fromkeys(endpoint.locality for endpoint in pool.endpoints))
        laid_out, computed = Places.of(localities), Topology(topology())
        by_locality: dict[Locality, dict[str, float]] = {locality: {} for locality in localities}
        for place in places:
            factors = computed.factors(place, laid_out)
            if (factors == factors[:1]).all():
                factors = np.ones(len(localities))
            for locality, factor in zip(localities, factors.tolist(), strict=True):
                by_locality[locality][_place(place)] = factor
        return by_locality


def _checked(weights: Any, addresses: Collection[str], overridden: Collection[str]) -> dict[str, int | None]:
    """Check `weights`; null clears all overrides."""
    if weights is None:
        return dict.fromkeys(overridden)
    if not isinstance(weights, dict):
        raise ApiError("allowed: an object of address to weight, or null to clear all", path="weights")
    for address, weight in weights.items():
        path = f"weights.{str(address)[:100]}"
        if address not in addresses and not (weight is None and address in overridden):
            raise ApiError("no endpoint has this address", path=path)
        if weight is None:
            continue
        # A JSON true is an int to Python.
        if type(weight) is not int or not DRAINED <= weight <= MAX_WEIGHT:
            allowed = f"{MIN_WEIGHT} to {MAX_WEIGHT}, {DRAINED} to drain it, or null to clear it"
            raise ApiError(f"allowed: {allowed}", path=path)
    return dict(weights)


def _lifetime(body: Mapping[str, Any], *, needed: bool) -> float:
    seconds: Any = body.get("expires_seconds")
    if seconds is None and not needed:
        return 0.0
    if type(seconds) not in (int, float) or not 0 < seconds <= MAX_SECONDS:
        raise ApiError(f"allowed: seconds, above 0 and at most {MAX_SECONDS:g}", path="expires_seconds")
    return float(seconds)


def _place(locality: Locality) -> str:
    return f"{locality.region}/{locality.zone}/{locality.sub_zone}".rstrip("/")
