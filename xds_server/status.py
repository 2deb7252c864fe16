"""What the admin server shows of xds_server, as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.load import LOAD_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from fleet.load import Load
    from fleet.store import FleetStore
    from xds_server.discovery.server import DiscoveryService


class StatusViews:
    """Builds each view on request, from what is held anyway."""

    def __init__(self, store: FleetStore, discovery: DiscoveryService, registry: CollectorRegistry) -> None:
        self._store = store
        self._discovery = discovery
        self._registry = registry

    def views(self) -> Mapping[str, Callable[[], Any]]:
        """Path to view."""
        return {
            "/api/v1/endpoints": self.endpoints,
            "/api/v1/status": self.status,
            "/api/v1/clients": self.clients,
        }

    def endpoints(self) -> dict[str, Any]:
        """Every endpoint with its weight, requests in flight and load; null is unknown."""
        view, in_flight = self._store.view, self._store.in_flight()
        if view is None:
            return {"endpoints": []}
        return {
            "endpoints": [
                {
                    "address": endpoint.address,
                    "pool": endpoint.pool,
                    "weight": view.weights.get(endpoint.address),
                    "in_flight": in_flight.get(endpoint.address, 0),
                    "load": _values(view.loads.get(endpoint.address)),
                }
                for endpoint in view.membership.endpoints
            ]
        }

    def status(self) -> dict[str, Any]:
        """Counts since the start."""
        return {
            "weight_updates": int(self._total("warmroute_weight_updates_total")),
            "pushes": int(self._total("warmroute_xds_pushes_total")),
            "acks": int(self._total("warmroute_xds_acks_total")),
            "nacks": int(self._total("warmroute_xds_nacks_total")),
            "picks": {
                key: int(value) for key, value in self._by_label("warmroute_picks_total", "reason").items()
            },
        }

    def clients(self) -> dict[str, Any]:
        """Each connected Envoy, with its versions."""
        return {"clients": self._discovery.clients()}

    def _total(self, name: str) -> float:
        return sum(self._by_label(name, "").values())

    def _by_label(self, name: str, label: str) -> dict[str, float]:
        totals: dict[str, float] = {}
        for metric in self._registry.collect():
            for sample in metric.samples:
                if sample.name == name:
                    key = sample.labels.get(label, "")
                    totals[key] = totals.get(key, 0.0) + sample.value
        return totals


def _values(load: Load | None) -> dict[str, float | None] | None:
    if load is None:
        return None
    held = {name: getattr(load, name) for name in LOAD_FIELDS}
    return {name: None if signal is None else signal.value for name, signal in held.items()}
