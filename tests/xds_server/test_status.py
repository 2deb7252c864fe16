"""What the admin server shows of endpoints."""

from unittest.mock import Mock

from prometheus_client import CollectorRegistry

from fleet.endpoint import Endpoint
from fleet.store import FleetStore, Traffic
from xds_server.endpoints.listed import Listed
from xds_server.status import StatusViews


def test_in_flight_is_unknown_while_no_worker_tells() -> None:
    store = FleetStore()
    listed = [Listed(Endpoint(address, "p"), "admitted", "static") for address in ("a:1", "b:1")]
    views = StatusViews(store, Mock(), CollectorRegistry(), lambda: listed, dict)

    def in_flight() -> list[int | None]:
        return [entry["in_flight"] for entry in views.endpoints()["endpoints"]]

    assert in_flight() == [None, None]
    store.report("worker", [Traffic("a:1", 2, 3, 1)])
    assert in_flight() == [2, 0]
    store.forget_worker("worker")
    assert in_flight() == [None, None]
