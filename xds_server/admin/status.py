"""The admin server's views of xds_server, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.signals import SIGNALS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.signals import SignalTable
    from fleet.store import FleetStore
    from xds_server.discovery.csds import ClientStatusService
    from xds_server.endpoints.status import EndpointStatus


class StatusViews:
    """Builds each view on request, without data of its own."""

    def __init__(
        self,
        store: FleetStore,
        clients: ClientStatusService,
        registry: CollectorRegistry,
        statuses: Callable[[], Sequence[EndpointStatus]],
        serving: Callable[[], Mapping[str, Any]],
        pages: Callable[[], SignalTable],
    ) -> None:
        """`pages` has the signals of the metrics pages of all endpoints that are served or will be again."""
        self._store = store
        self._clients = clients
        self._registry = registry
        self._statuses = statuses
        self._serving = serving
        self._pages = pages

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Path to view."""
        return {
            "/api/v1/endpoints": self.endpoints,
            "/api/v1/status": self.status,
            "/api/v1/clients": self.clients,
        }

    def endpoints(self) -> dict[str, Any]:
        """Every endpoint, served or not; null is unknown, and a weight of null means no new requests.

        They are made as they are read: of thousands that takes long.
        """
        view, in_flight = self._store.view, self._store.in_flight()
        # Without any worker the number of requests in flight is unknown.
        otherwise = 0 if self._store.traffic() else None
        weights = {} if view is None else view.weights
        # An endpoint without new requests is not weighed, so only its page shows its remaining requests.
        tables = (self._pages(),) if view is None else (self._pages(), view.signals)
        loads = {
            address: table.endpoint_values(n) for table in tables for n, address in enumerate(table.addresses)
        }
        return {
            "endpoints": (
                {
                    "address": status.endpoint.address,
                    "pool": status.endpoint.pool,
                    "state": status.state,
                    "source": status.source,
                    "not_ready": status.not_ready,
                    "weight": weights.get(status.endpoint.address),
                    "in_flight": in_flight.get(status.endpoint.address, otherwise),
                    "load": _values(loads.get(status.endpoint.address)),
                }
                for status in self._statuses()
            )
        }

    def status(self) -> dict[str, Any]:
        """Counts since the start, and the pools without live data."""
        return {
            **self._serving(),
            "weight_updates": int(self._total("warmroute_weight_updates_total")),
            "pushes": int(self._total("warmroute_xds_pushes_total")),
            "acks": int(self._total("warmroute_xds_acks_total")),
            "nacks": int(self._total("warmroute_xds_nacks_total")),
            "picks": {
                key: int(value) for key, value in self._by_label("warmroute_picks_total", "reason").items()
            },
            "certificate_refusals": {
                key: int(value)
                for key, value in self._by_label("warmroute_certificate_refusals_total", "use").items()
            },
        }

    async def clients(self) -> dict[str, Any]:
        """Each connected Envoy, with its versions."""
        return {"clients": await self._clients.clients()}

    def _total(self, name: str) -> float:
        return sum(self._by_label(name, "").values())

    def _by_label(self, name: str, label: str) -> dict[str, float]:
        totals: dict[str, float] = {}
        for metric in self._registry.restricted_registry([name]).collect():
            for sample in metric.samples:
                if sample.name == name:
                    key = sample.labels.get(label, "")
                    totals[key] = totals.get(key, 0.0) + sample.value
        return totals


def _values(load: Mapping[str, float] | None) -> dict[str, float | None] | None:
    return None if load is None else {name: load.get(name) for name in SIGNALS}
