"""Times of answers and the lag, on a clock of the test's own."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from fleet.endpoint import Locality
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from xds_server.discovery.changes import Answer
from xds_server.discovery.client import Client
from xds_server.discovery.progress import Progress
from xds_server.discovery.status import (
    ClientStatus,
    DiscoveryMetrics,
    DiscoveryObserver,
    Record,
    TypeStatus,
)

if TYPE_CHECKING:
    from collections.abc import Collection

NODE = Client("node-1", "fleet", Locality())


@pytest.fixture
def world() -> SimpleNamespace:
    """A progress with clocks that stand still; `wall` is 1,000 ahead."""
    world = SimpleNamespace(now=0.0)
    world.progress = Progress(2, clock=lambda: world.now, wall=lambda: world.now + 1000)
    return world


def one(progress: Progress, *types: TypeStatus, client: Client = NODE) -> Any:
    status = ClientStatus(client.node_id, client.cluster, client.locality, "sotw", 1, types)
    return progress.of(status)


def status(sent: str, acked: str, nacked: str = "", error: str = "") -> TypeStatus:
    return TypeStatus(TYPE_ENDPOINT, sent, acked, nacked, error)


def test_lag_counts_from_the_oldest_push_that_no_ack_covers(world: SimpleNamespace) -> None:
    world.progress.pushed(NODE, TYPE_ENDPOINT, "v1")
    world.now = 1.0
    world.progress.acked(NODE, TYPE_ENDPOINT, "v1")
    for now, version in ((2.0, "v2"), (3.0, "v3"), (4.0, "v4")):
        world.now = now
        world.progress.pushed(NODE, TYPE_ENDPOINT, version)
    world.now = 7.0
    (shown,) = one(world.progress, status("v4", "v1")).types
    assert (shown.state, shown.lag_seconds, shown.acked_at) == ("stale", 5.0, 1001.0)
    world.progress.acked(NODE, TYPE_ENDPOINT, "v3")
    assert one(world.progress, status("v4", "v3")).lag_seconds == 3.0
    world.progress.acked(NODE, TYPE_ENDPOINT, "v4")
    (shown,) = one(world.progress, status("v4", "v4")).types
    assert (shown.state, shown.lag_seconds, shown.acked_at) == ("synced", 0.0, 1007.0)


def test_a_client_that_refuses_lags_until_it_takes_something(world: SimpleNamespace) -> None:
    world.progress.pushed(NODE, TYPE_ENDPOINT, "bad")
    world.now = 1.0
    world.progress.nacked(NODE, TYPE_ENDPOINT, "bad", "no")
    world.now = 5.0
    (shown,) = one(world.progress, status("bad", "", "bad", "no")).types
    assert (shown.state, shown.lag_seconds, shown.nacked_at) == ("error", 5.0, 1001.0)
    world.progress.pushed(NODE, TYPE_ENDPOINT, "good")
    world.progress.acked(NODE, TYPE_ENDPOINT, "good")
    (shown,) = one(world.progress, status("good", "good")).types
    assert (shown.state, shown.lag_seconds, shown.nacked_at) == ("synced", 0.0, 1001.0)


def test_ack_of_a_restored_version_covers_the_nacked_one(world: SimpleNamespace) -> None:
    world.progress.pushed(NODE, TYPE_ENDPOINT, "good")
    world.progress.acked(NODE, TYPE_ENDPOINT, "good")
    world.progress.pushed(NODE, TYPE_ENDPOINT, "bad")
    world.progress.nacked(NODE, TYPE_ENDPOINT, "bad", "no")
    world.progress.pushed(NODE, TYPE_ENDPOINT, "good")
    world.progress.acked(NODE, TYPE_ENDPOINT, "good")
    world.now = 100.0
    world.progress.pushed(NODE, TYPE_ENDPOINT, "next")
    world.now = 101.0
    assert one(world.progress, status("next", "good")).lag_seconds == 1.0


def test_ack_may_be_recorded_before_its_push(world: SimpleNamespace) -> None:
    world.progress.acked(NODE, TYPE_ENDPOINT, "v1")
    world.progress.pushed(NODE, TYPE_ENDPOINT, "v1")
    world.now = 5.0
    world.progress.pushed(NODE, TYPE_ENDPOINT, "v2")
    world.now = 6.0
    assert one(world.progress, status("v2", "v1")).lag_seconds == 1.0


def test_pending_pushes_are_bounded_and_keep_the_oldest_time(world: SimpleNamespace) -> None:
    for number in range(1000):
        world.now = float(number)
        world.progress.pushed(NODE, TYPE_ENDPOINT, f"v{number}")
    assert one(world.progress, status("v999", "")).lag_seconds == 999.0
    assert sum(len(answers.waiting) for answers in world.progress._answers.values()) <= 16


def test_client_lag_is_that_of_its_latest_type_or_none(world: SimpleNamespace) -> None:
    clusters = TypeStatus(TYPE_CLUSTER, "", "", "", "")
    assert one(world.progress, clusters).lag_seconds == 0.0
    assert one(world.progress, clusters).types[0].state == "not_sent"
    world.progress.pushed(NODE, TYPE_ENDPOINT, "v1")
    world.now = 2.0
    assert one(world.progress, clusters, status("v1", "")).lag_seconds == 2.0
    # Being written: `pushed` has not been called yet.
    shown = one(world.progress, replace(clusters, version_sent="c1"), status("v1", ""))
    assert [entry.lag_seconds for entry in shown.types] == [None, 2.0]
    assert shown.lag_seconds is None


def test_nodes_are_bounded_and_the_oldest_are_forgotten(world: SimpleNamespace) -> None:
    for number in range(100):
        node = Client(f"node-{number}", "fleet", Locality())
        world.progress.acked(node, TYPE_ENDPOINT, "v1")
    assert len(world.progress._answers) == 8
    assert one(world.progress, status("v1", "v1"), client=node).types[0].acked_at == 1000.0
    assert one(world.progress, status("v1", "v1")).types[0].acked_at is None


def test_record_calls_each_observer_in_order() -> None:
    calls: list[tuple[str, ...]] = []

    class Observer(DiscoveryObserver):
        def __init__(self, name: str) -> None:
            self.name = name

        def opened(self, client: Client, peer: str) -> None:
            calls.append((self.name, "opened", peer))

        def pushed(self, client: Client, type_url: str, version: str) -> None:
            calls.append((self.name, "pushed", version))

        def acked(self, client: Client, type_url: str, version: str) -> None:
            calls.append((self.name, "acked", version))

        def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:
            calls.append((self.name, "nacked", version, message))

        def closed(self, client: Client, type_urls: Collection[str]) -> None:
            calls.append((self.name, "closed", *type_urls))

    record = Record([Observer("1"), Observer("2")], DiscoveryMetrics(CollectorRegistry()))
    record.opened(NODE, "unix:")
    record.pushed(NODE, TYPE_ENDPOINT, "a")
    record.answered(NODE, Answer(TYPE_ENDPOINT, "a", None))
    record.answered(NODE, Answer(TYPE_ENDPOINT, "b", "no"))
    record.closed(NODE, [TYPE_ENDPOINT])
    events: list[tuple[str, ...]] = [
        ("opened", "unix:"),
        ("pushed", "a"),
        ("acked", "a"),
        ("nacked", "b", "no"),
        ("closed", TYPE_ENDPOINT),
    ]
    assert calls == [(name, *event) for event in events for name in ("1", "2")]


def test_newest_ack_with_a_nacked_resource_is_not_synced(world: SimpleNamespace) -> None:
    world.progress.pushed(NODE, TYPE_ENDPOINT, "v2")
    world.progress.acked(NODE, TYPE_ENDPOINT, "v2")
    (shown,) = one(world.progress, status("v2", "v2", "v1", "no")).types
    assert (shown.state, shown.lag_seconds, shown.error) == ("error", 0.0, "no")
