"""What a client refuses costs only itself: the rest of the response comes again, and nothing for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_SECRET
from xds_server.discovery.shared_response import SharedResponseCache
from xds_server.discovery.sotw import Sotw

if TYPE_CHECKING:
    from types import SimpleNamespace

VARIANTS = ("sotw", "delta")
ABC = ("a", "b", "c")


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def bodies(response: Any) -> list[Any]:
    return [getattr(entry, "resource", entry) for entry in response.resources]


class Envoy:
    """Takes the resources of a response in order, up to the first that it refuses, as Envoy does."""

    def __init__(self, xds: SimpleNamespace, variant: str, type_url: str = TYPE_SECRET) -> None:
        self.machine, self.peer = xds.machine(variant), xds.peer(variant)
        self.type_url = type_url
        self.bad: set[bytes] = set()
        self.has: dict[str, bytes] = {}
        self.sent: list[int] = []
        self._names: dict[bytes, str] = {}

    def knows(self, *resources: Any) -> None:
        self._names.update({entry.body.value: entry.name for entry in resources})

    def settle(self, responses: list[Any]) -> None:
        waiting = list(responses)
        while waiting:
            response = waiting.pop(0)
            assert len(self.sent) < 100, "no end to it"
            if response.type_url != self.type_url:
                waiting += self.machine.on_request(self.peer.answer(response))
                continue
            self.sent.append(len(response.resources))
            error = ""
            for body in bodies(response):
                if body.value in self.bad:
                    error = "refused"
                    break
                self.has[self._names[body.value]] = body.value
            waiting += self.machine.on_request(self.peer.answer(response, error))

    def publish(self, xds: SimpleNamespace, *resources: Any) -> list[int]:
        """Returns how many resources each response carried."""
        self.knows(*resources)
        self.sent.clear()
        self.settle(self.machine.on_snapshot(xds.snapshot(*resources)))
        return list(self.sent)


def makers(xds: SimpleNamespace) -> dict[str, Any]:
    return {
        TYPE_SECRET: lambda name, number: xds.secret(name, str(number)),
        TYPE_ENDPOINT: lambda name, number: xds.assignment(name, number + 1),
        TYPE_CLUSTER: lambda name, number: xds.cluster(name, seconds=number + 1),
        TYPE_LISTENER: lambda name, number: xds.listener(name, str(number)),
    }


@pytest.mark.parametrize(
    ("variant", "type_url"),
    [
        *((variant, type_url) for variant in VARIANTS for type_url in (TYPE_SECRET, TYPE_ENDPOINT)),
        ("delta", TYPE_CLUSTER),
        ("delta", TYPE_LISTENER),
    ],
    indirect=["variant"],
)
def test_one_refused_resource_costs_no_other(xds: SimpleNamespace, variant: str, type_url: str) -> None:
    """At the first response of a stream, at a change of all of them, and when it is mended."""
    make, envoy = makers(xds)[type_url], Envoy(xds, variant, type_url)
    old, new = ([make(name, number) for name in ABC] for number in (0, 1))
    envoy.bad = {old[0].body.value, new[1].body.value}
    envoy.publish(xds, *old)
    envoy.settle(envoy.machine.on_request(envoy.peer.ask(type_url, ABC)))
    assert envoy.has == {entry.name: entry.body.value for entry in old[1:]}
    assert envoy.sent == ([1, 1, 1] if type_url == TYPE_SECRET else [3, 1, 1, 1])
    # It goes alone from now on, so what is good needs no second way.
    third = make("b", 2)
    assert envoy.publish(xds, new[0], third, new[2]) == ([1, 1, 1] if type_url == TYPE_SECRET else [1, 2])
    assert envoy.has == {entry.name: entry.body.value for entry in (new[0], third, new[2])}
    assert envoy.publish(xds, *new) == [1]
    assert envoy.has == {entry.name: entry.body.value for entry in (new[0], third, new[2])}
    subscription = envoy.machine.subscriptions[type_url]
    assert subscription.error == "refused"
    assert envoy.publish(xds, *new) == []
    assert envoy.publish(xds, new[0], third, new[2]) == [1]
    assert subscription.error == ""
    assert not subscription.nacked


def test_a_client_that_refuses_everything_hears_each_twice(xds: SimpleNamespace, variant: str) -> None:
    envoy = Envoy(xds, variant, TYPE_ENDPOINT)
    resources = [xds.assignment(name, 1) for name in ABC]
    envoy.bad = {entry.body.value for entry in resources}
    envoy.publish(xds, *resources)
    envoy.settle(envoy.machine.on_request(envoy.peer.ask(TYPE_ENDPOINT, ABC)))
    assert envoy.sent == [3, 1, 1, 1]
    assert envoy.publish(xds, *resources, xds.assignment("unasked")) == []


def test_nack_lasts_while_other_resources_are_acked(xds: SimpleNamespace, variant: str) -> None:
    """Otherwise an ACK of another secret would hide that a listener has none."""
    envoy = Envoy(xds, variant)
    resources = [xds.secret(name) for name in ABC]
    envoy.bad = {resources[0].body.value}
    envoy.publish(xds, *resources)
    answers: list[Any] = []
    receive = envoy.machine.receive_request
    envoy.machine.receive_request = lambda request: answers.append(receive(request))
    envoy.settle(envoy.machine.on_request(envoy.peer.ask(TYPE_SECRET, ABC)))
    subscription = envoy.machine.subscriptions[TYPE_SECRET]
    assert subscription.nacked_version == subscription.sent_version
    assert [answer.name for answer in answers if answer and answer.error] == ["a"]
    # Who no longer wants it complains no more.
    envoy.settle(envoy.machine.on_request(envoy.peer.ask(TYPE_SECRET, ("b", "c"))))
    envoy.publish(xds, resources[0], resources[1], xds.secret("c", "new"))
    assert subscription.error == ""


def test_a_complaint_about_an_older_response_counts_in_sotw(xds: SimpleNamespace) -> None:
    """And without it: Envoy may answer several responses by the nonce of the last."""
    for answered in (0, 1):
        machine, peer = xds.machine("sotw"), xds.peer("sotw")
        machine.on_snapshot(xds.snapshot(*(xds.assignment(name, 1) for name in ABC)))
        responses = machine.on_request(peer.ask(TYPE_ENDPOINT, ABC))
        newer = [xds.assignment(name, 2) for name in ("a", "b")]
        responses += machine.on_snapshot(xds.snapshot(*newer, xds.assignment("c", 1)))
        assert [len(entry.resources) for entry in responses] == [3, 2]
        again = machine.on_request(peer.answer(responses[answered], "refused"))
        # Of the first response only what the second has not replaced.
        assert len(again) == (1, 3)[answered]
        assert machine.subscriptions[TYPE_ENDPOINT].error == "refused"


def test_delta_repeats_a_removal_nacked_with_others(xds: SimpleNamespace) -> None:
    machine, peer = xds.machine("delta"), xds.peer("delta")
    clusters = [xds.cluster(name) for name in ABC]
    machine.on_snapshot(xds.snapshot(*clusters))
    (first,) = machine.on_request(peer.ask(TYPE_CLUSTER))
    machine.on_request(peer.answer(first))
    (change,) = machine.on_snapshot(xds.snapshot(clusters[0], xds.cluster("b", seconds=9)))
    assert list(change.removed_resources) == ["c"]
    again = machine.on_request(peer.answer(change, "refused"))
    assert [(len(entry.resources), list(entry.removed_resources)) for entry in again] == [(1, []), (0, ["c"])]
    for entry in again:
        assert machine.on_request(peer.answer(entry, "refused")) == []


def test_refused_clusters_of_sotw_wait_for_the_next_change(xds: SimpleNamespace) -> None:
    """A response carries all of them: one of them alone would take the others away."""
    machine, peer = xds.machine("sotw"), xds.peer("sotw")
    clusters = [xds.cluster(name) for name in ABC]
    machine.on_snapshot(xds.snapshot(*clusters))
    (first,) = machine.on_request(peer.ask(TYPE_CLUSTER))
    assert machine.on_request(peer.answer(first, "refused")) == []
    (second,) = machine.on_snapshot(xds.snapshot(*clusters[:2], xds.cluster("c", seconds=9)))
    assert len(second.resources) == 3


def test_what_one_client_refused_changes_no_others_plan(xds: SimpleNamespace) -> None:
    """Clients that are alike share what they are sent; one with a refused assignment is not alike."""
    plans, numbers = SharedResponseCache(Sotw.compose, "shared"), iter(range(100))
    machines = [Sotw(lambda: f"n{next(numbers)}", shared_responses=plans) for _ in range(2)]
    one = xds.snapshot(*(xds.assignment(name, 1) for name in ABC))
    other = xds.snapshot(*(xds.assignment(name, 2) for name in ABC))
    counts = []
    for index, machine in enumerate(machines):
        peer = xds.peer("sotw")
        machine.receive_request(peer.ask(TYPE_ENDPOINT, ABC))
        refuses = index == 0
        for snapshot in (one, other):
            while (response := machine.next_response(snapshot)) is not None:
                message = discovery_pb2.DiscoveryResponse.FromString(response.data)
                counts.append((index, len(message.resources)))
                machine.receive_request(peer.answer(message, "no" if refuses and snapshot is one else ""))
    assert counts == [*((0, n) for n in (3, 1, 1, 1, 1, 1, 1)), (1, 3), (1, 3)]
