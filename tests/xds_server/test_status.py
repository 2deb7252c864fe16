"""What the admin server shows of endpoints."""

from unittest.mock import Mock

from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint, Membership, Pool
from fleet.store import FleetStore, Traffic
from testing.signals import Load, Signal, table_of, view_with
from xds_server.admin.status import StatusViews
from xds_server.endpoints.status import EndpointStatus


def test_in_flight_is_unknown_while_no_worker_tells() -> None:
    store = FleetStore()
    listed = [EndpointStatus(Endpoint(address, "p"), "admitted", "static") for address in ("a:1", "b:1")]
    views = StatusViews(store, Mock(), CollectorRegistry(), lambda: listed, dict, lambda: table_of((), {}))

    def in_flight() -> list[int | None]:
        return [entry["in_flight"] for entry in views.endpoints()["endpoints"]]

    assert in_flight() == [None, None]
    store.report("worker", [Traffic("a:1", 2, 3, 1)])
    assert in_flight() == [2, 0]
    store.forget_worker("worker")
    assert in_flight() == [None, None]


def test_unweighed_endpoint_shows_its_page() -> None:
    """What a drained endpoint has begun goes on, and can be watched."""
    store = FleetStore()
    names = ("weighed:1", "drained:1", "new:1")
    weighed, drained, new = (Endpoint(address, "p") for address in names)
    listed = [
        EndpointStatus(weighed, "admitted", "s"),
        EndpointStatus(drained, "drained", "s"),
        EndpointStatus(new, "probing", "s"),
    ]
    pages = {address: Load(queue_depth=Signal(3.0, 1.0, "scrape")) for address in names[:2]}
    joined = {"weighed:1": Load(queue_depth=Signal(4.0, 1.0, "scrape"))}
    store.publish(view_with(Membership((Pool("p", (weighed,)),)), {"weighed:1": 1000}, joined))
    views = StatusViews(
        store, Mock(), CollectorRegistry(), lambda: listed, dict, lambda: table_of(names[:2], pages)
    )
    loads = [entry["load"] for entry in views.endpoints()["endpoints"]]
    assert [load and load["queue_depth"] for load in loads] == [4.0, 3.0, None]
