"""Series that are read at each scrape: endpoints' weights and signals, and the lag of clients."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np
from prometheus_client import Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from fleet.signals import SIGNALS, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from prometheus_client import CollectorRegistry, Metric

    from fleet.endpoint import Endpoint
    from fleet.signals import SignalTable
    from fleet.store import FleetStore, FleetView

MOST_ENDPOINTS: Final = 256
"""A page of this many, with all signals, has 9,300 lines and blocks the event loop for 45 ms."""
EXPOSED: Final = tuple(name for name in SIGNALS if not name.endswith("_total"))
"""Of totals only the movement has a meaning."""
_LABELS: Final = ("pool", "endpoint")
_WEIGHT: Final = "warmroute_endpoint_weight"
_SHARE: Final = "warmroute_endpoint_share"
_AGE: Final = "warmroute_signal_age_seconds"
_LEFT_OUT: Final = "warmroute_endpoints_not_exposed"


def signal_metric(name: str) -> str:
    """Return the metric of a signal."""
    return f"warmroute_endpoint_{name}"


class EndpointExposition(Collector):
    """Gauges by pool and endpoint. An unknown value has no series, never a 0.

    Nothing is kept between scrapes, so an endpoint that left is gone from the next page, and a page costs
    only when it is read. At most `most_endpoints` are shown, in the order of the membership.
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

    def describe(self) -> Iterable[Metric]:
        """Name the metrics without values, so that registries can restrict and check names."""
        yield from _families().values()
        yield _left_out(0)

    def collect(self) -> Iterable[Metric]:
        """Read the store's newest view; signals without any value have no family."""
        view = self._store.view
        endpoints = () if view is None else view.membership.endpoints
        exposed = endpoints[: self._most_endpoints]
        families = _families()
        if view is not None:
            self._fill(families, view, exposed)
        yield from (
            family for name, family in families.items() if family.samples or name in {_WEIGHT, _SHARE, _AGE}
        )
        yield _left_out(len(endpoints) - len(exposed))

    def _fill(
        self, families: Mapping[str, GaugeMetricFamily], view: FleetView, shown: Sequence[Endpoint]
    ) -> None:
        shares, signals = _shares(view), view.signals.part(0, len(shown))
        labels = [(endpoint.pool, endpoint.address) for endpoint in shown]
        for pair in labels:
            if (weight := view.weights.get(pair[1])) is not None:
                families[_WEIGHT].add_metric(pair, weight)
                families[_SHARE].add_metric(pair, shares[pair[1]])
        for name in EXPOSED:
            _add_observed(families[signal_metric(name)], labels, signals[name])
        for source, ages in _ages(signals, self._clock()):
            _add_observed(families[_AGE], [(*pair, source) for pair in labels], ages)


def _families() -> dict[str, GaugeMetricFamily]:
    families = {
        _WEIGHT: GaugeMetricFamily(_WEIGHT, "The weight that EDS carries", labels=_LABELS),
        _SHARE: GaugeMetricFamily(_SHARE, "Weight over the sum of its pool's, 0 to 1", labels=_LABELS),
    }
    for name in EXPOSED:
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


def _add_observed(
    family: GaugeMetricFamily, labels: Sequence[tuple[str, ...]], column: NDArray[np.float64]
) -> None:
    for place in np.flatnonzero(~np.isnan(column)).tolist():
        family.add_metric(labels[place], float(column[place]))


def _ages(signals: SignalTable, now: float) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield each source with the seconds since every endpoint's newest signal from it; NaN: none."""
    observed = ~np.isnan(signals.values)
    for source in Source:
        newest = np.where(observed & (signals.sources == source), signals.observed_at, -np.inf)
        newest = newest.max(axis=0, initial=-np.inf)
        yield source.label, np.where(np.isfinite(newest), np.maximum(now - newest, 0.0), np.nan)


class TickMetrics:
    """Metrics of the ticks of one xds_server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.updates = Counter(
            "warmroute_weight_updates_total", "Published weight updates", registry=registry
        )
        self.faults = Counter(
            "warmroute_tick_faults_total", "Ticks that failed by our fault", registry=registry
        )
        self.blind = Gauge(
            "warmroute_blind_pools", "Pools whose pages show no memory, queue or running", registry=registry
        )


class ClientExposition(Collector):
    """The number of discovery's clients and the lag of the slowest. Nothing is kept between scrapes."""

    def __init__(self, lag: Callable[[], tuple[int, float]]) -> None:
        """`lag` returns the number of clients, and the age in seconds of the oldest missing ACK."""
        self._lag = lag

    def describe(self) -> Iterable[Metric]:
        """Name the metrics without calling `lag`."""
        yield from _client_families(0, 0.0)

    def collect(self) -> Iterable[Metric]:
        """Call `lag`; without clients the lag is 0."""
        yield from _client_families(*self._lag())


def _client_families(clients: int, lag_seconds: float) -> tuple[Metric, Metric]:
    return (
        GaugeMetricFamily("warmroute_xds_clients", "Connected Envoys and gRPC clients", value=clients),
        GaugeMetricFamily(
            "warmroute_xds_lag_seconds",
            "Age of the oldest missing ACK; a client that has not taken anything yet is not counted",
            value=lag_seconds,
        ),
    )
