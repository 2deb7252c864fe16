"""Series read when a page is asked for: endpoints' weights and signals, and how far clients lag."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fleet.load import LOAD_FIELDS, Load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from prometheus_client import CollectorRegistry, Metric

    from fleet.endpoint import Endpoint
    from fleet.store import FleetStore, FleetView

MOST_ENDPOINTS: Final = 256
"""A page of so many, every signal known, has 9,300 lines and holds the event loop up for 45 ms."""
SIGNAL_FIELDS: Final = tuple(name for name in LOAD_FIELDS if name != "progress_total")
"""`progress_total` means something only by whether it moves, and `stalled` tells that."""
_LABELS: Final = ("pool", "endpoint")
_WEIGHT: Final = "warmroute_endpoint_weight"
_SHARE: Final = "warmroute_endpoint_share"
_AGE: Final = "warmroute_signal_age_seconds"
_LEFT_OUT: Final = "warmroute_endpoints_not_exposed"


def signal_metric(name: str) -> str:
    """Return the metric that carries a field of `Load`."""
    return f"warmroute_endpoint_{name}"


class EndpointExposition(Collector):
    """Gauges by pool and endpoint. What is unknown has no series, never a 0.

    Nothing is kept between scrapes, so an endpoint that left is gone from the next page, and a page costs
    only when somebody reads it. At most `most_endpoints` are told, in the order of the membership.
    """

    def __init__(
        self,
        store: FleetStore,
        clock: Callable[[], float] = time.monotonic,
        most_endpoints: int = MOST_ENDPOINTS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._most_endpoints = most_endpoints

    def register(self, registry: CollectorRegistry) -> None:
        """Put it on the page of `registry`."""
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Name the metrics without reading anything, so that registries can restrict and check names."""
        yield from _families().values()
        yield _left_out(0)

    def collect(self) -> Iterable[Metric]:
        """Read the store's newest view; signals that nobody has have no family."""
        view = self._store.view
        endpoints = () if view is None else view.membership.endpoints
        told = endpoints[: self._most_endpoints]
        families = _families()
        if view is not None:
            self._fill(families, view, told)
        yield from (
            family for name, family in families.items() if family.samples or name in {_WEIGHT, _SHARE, _AGE}
        )
        yield _left_out(len(endpoints) - len(told))

    def _fill(
        self, families: Mapping[str, GaugeMetricFamily], view: FleetView, told: Sequence[Endpoint]
    ) -> None:
        shares, now = _shares(view), self._clock()
        for endpoint in told:
            address = endpoint.address
            labels = (endpoint.pool, address)
            if (weight := view.weights.get(address)) is not None:
                families[_WEIGHT].add_metric(labels, weight)
                families[_SHARE].add_metric(labels, shares[address])
            load = view.loads.get(address)
            if load is None:
                continue
            for name in SIGNAL_FIELDS:
                if (held := getattr(load, name)) is not None:
                    families[signal_metric(name)].add_metric(labels, held.value)
            for source, age in _ages(load, now):
                families[_AGE].add_metric((*labels, source), age)


def _families() -> dict[str, GaugeMetricFamily]:
    families = {
        _WEIGHT: GaugeMetricFamily(_WEIGHT, "The weight that EDS carries", labels=_LABELS),
        _SHARE: GaugeMetricFamily(_SHARE, "Weight over the sum of its pool's, 0 to 1", labels=_LABELS),
    }
    for name in SIGNAL_FIELDS:
        text = f"The signal {name.replace('_', ' ')}; absent while unknown"
        families[signal_metric(name)] = GaugeMetricFamily(signal_metric(name), text, labels=_LABELS)
    families[_AGE] = GaugeMetricFamily(
        _AGE, "Age of the newest signal of a source", labels=(*_LABELS, "source")
    )
    return families


def _left_out(count: int) -> Metric:
    return GaugeMetricFamily(_LEFT_OUT, "Endpoints that have no series of their own: too many", value=count)


def _shares(view: FleetView) -> dict[str, float]:
    """Weight over the sum of the pool's weights, by address."""
    totals: dict[str, int] = {}
    for endpoint in view.membership.endpoints:
        totals[endpoint.pool] = totals.get(endpoint.pool, 0) + view.weights.get(endpoint.address, 0)
    return {
        endpoint.address: view.weights.get(endpoint.address, 0) / total
        for endpoint in view.membership.endpoints
        if (total := totals[endpoint.pool])
    }


def _ages(load: Load, now: float) -> Iterator[tuple[str, float]]:
    """Age in seconds of the newest signal of each source."""
    newest: dict[str, float] = {}
    for name in LOAD_FIELDS:
        held = getattr(load, name)
        if held is not None:
            newest[held.source] = max(newest.get(held.source, held.observed_at), held.observed_at)
    for source, observed_at in newest.items():
        yield source, max(0.0, now - observed_at)


class ClientExposition(Collector):
    """How many clients discovery has, and how far the slowest lags. Nothing is kept between scrapes."""

    def __init__(self, lag: Callable[[], tuple[int, float]]) -> None:
        """`lag` returns how many clients there are, and how many seconds the slowest has owed an ACK."""
        self._lag = lag

    def register(self, registry: CollectorRegistry) -> None:
        """Put it on the page of `registry`."""
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Name the metrics without asking for the clients."""
        yield from _client_families(0, 0.0)

    def collect(self) -> Iterable[Metric]:
        """Ask for the clients; without any, nobody lags."""
        yield from _client_families(*self._lag())


def _client_families(clients: int, lag_seconds: float) -> tuple[Metric, Metric]:
    return (
        GaugeMetricFamily("warmroute_xds_clients", "Connected Envoys and gRPC clients", value=clients),
        GaugeMetricFamily(
            "warmroute_xds_lag_seconds",
            "How long the slowest client has owed an ACK; one that has not taken anything yet is not counted",
            value=lag_seconds,
        ),
    )
