"""Series by endpoint: what is known is told, what is unknown is not, and all of it is bounded."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.signals import SIGNALS
from fleet.store import FleetStore, FleetView
from testing.signals import Load, Signal, view_with
from xds_server.telemetry.exposition import EXPOSED, ClientExposition, EndpointExposition, signal_metric

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def fleet(*addresses: str, pool: str = "chat") -> Membership:
    return Membership((Pool(pool, tuple(Endpoint(address, pool) for address in addresses)),))


def page(store: FleetStore, **kwargs: int) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(EndpointExposition(store, clock=lambda: 105.0, **kwargs))
    return registry


def value(registry: CollectorRegistry, name: str, endpoint: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"pool": "chat", "endpoint": endpoint, **labels})


async def test_weights_shares_and_known_signals_are_told() -> None:
    store = FleetStore()
    load = Load(queue_depth=Signal(3.0, 100.0, "scrape"), in_flight=Signal(0.0, 104.0, "traffic"))
    store.publish(view_with(fleet(A, B), {A: 300, B: 100}, {A: load}))
    registry = page(store)
    assert value(registry, "warmroute_endpoint_weight", A) == 300
    assert value(registry, "warmroute_endpoint_share", B) == pytest.approx(0.25)
    assert value(registry, "warmroute_endpoint_queue_depth", A) == 3
    assert value(registry, "warmroute_endpoint_in_flight", A) == 0, "a known 0 is told"
    assert value(registry, "warmroute_signal_age_seconds", A, source="scrape") == 5
    assert value(registry, "warmroute_signal_age_seconds", A, source="traffic") == 1


async def test_unknown_signals_have_no_series() -> None:
    """A 0 in its place would look like an idle engine."""
    store = FleetStore()
    store.publish(view_with(fleet(A, B), {A: 100}, {A: Load()}))
    registry = page(store)
    names = {sample.name for metric in registry.collect() for sample in metric.samples}
    assert names == {
        "warmroute_endpoint_weight",
        "warmroute_endpoint_share",
        "warmroute_endpoints_not_exposed",
    }
    assert value(registry, "warmroute_endpoint_weight", B) is None, "no weight: no new requests go there"


async def test_page_before_the_first_view_has_no_endpoints() -> None:
    registry = page(FleetStore())
    assert registry.get_sample_value("warmroute_endpoints_not_exposed") == 0
    assert generate_latest(registry)


async def test_age_is_of_the_newest_signal_of_a_source() -> None:
    store = FleetStore()
    load = Load(queue_depth=Signal(3.0, 90.0, "scrape"), running=Signal(1.0, 103.0, "scrape"))
    store.publish(view_with(fleet(A), {A: 1}, {A: load}))
    assert value(page(store), "warmroute_signal_age_seconds", A, source="scrape") == 2


async def test_shares_are_of_the_pool() -> None:
    store = FleetStore()
    pools = (*fleet(A, B).pools, *fleet(C, pool="code").pools)
    store.publish(FleetView(Membership(pools), {A: 30, B: 10, C: 7}))
    registry = page(store)
    assert value(registry, "warmroute_endpoint_share", A) == pytest.approx(0.75)
    labels = {"pool": "code", "endpoint": C}
    assert registry.get_sample_value("warmroute_endpoint_share", labels) == 1


async def test_endpoints_over_the_limit_are_counted() -> None:
    store = FleetStore()
    store.publish(FleetView(fleet(A, B, C), {A: 100, B: 100, C: 200}))
    registry = page(store, most_endpoints=2)
    assert value(registry, "warmroute_endpoint_share", A) == pytest.approx(0.25)
    assert value(registry, "warmroute_endpoint_weight", C) is None
    assert registry.get_sample_value("warmroute_endpoints_not_exposed") == 1


async def test_series_end_with_their_endpoint() -> None:
    store = FleetStore()
    store.publish(FleetView(fleet(A, B), {A: 1, B: 1}))
    registry = page(store)
    assert value(registry, "warmroute_endpoint_weight", B) == 1
    store.publish(FleetView(fleet(A), {A: 1}))
    assert value(registry, "warmroute_endpoint_weight", B) is None


async def test_every_signal_has_a_metric() -> None:
    """A view that wants one counter must not pay for thousands of series."""
    store = FleetStore()
    load = {name: Signal(0.5, 100.0, "scrape") for name in SIGNALS}
    store.publish(view_with(fleet(A), {A: 1}, {A: Load(**load)}))
    registry = page(store)
    names = {sample.name for metric in registry.collect() for sample in metric.samples}
    assert {signal_metric(name) for name in EXPOSED} < names
    Gauge("other", "Another", registry=registry)
    restricted = registry.restricted_registry(["other"])
    assert [metric.name for metric in restricted.collect()] == ["other"]
    with pytest.raises(ValueError, match="Duplicated"):
        Gauge("warmroute_endpoint_queue_depth", "Taken", registry=registry)


def test_lag_is_that_of_the_slowest_client() -> None:
    registry = CollectorRegistry()
    registry.register(ClientExposition(lambda: (3, 4.5)))
    assert registry.get_sample_value("warmroute_xds_clients") == 3
    assert registry.get_sample_value("warmroute_xds_lag_seconds") == 4.5
