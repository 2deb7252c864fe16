"""The protocol without sockets: both variants as state machines, message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from fleet.envoy_api.config.endpoint.v3 import endpoint_pb2
from fleet.errors import PeerError
from fleet.names import RESOURCE_TYPES, TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE, TYPE_SECRET

if TYPE_CHECKING:
    from types import SimpleNamespace

VARIANTS = ("sotw", "delta")


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Talk:
    """A machine and a peer that answers every response, until both are quiet."""

    def __init__(self, xds: SimpleNamespace, variant: str) -> None:
        self.machine = xds.machine(variant)
        self.peer = xds.peer(variant)

    def ask(self, type_url: str, names: tuple[str, ...] = (), again: tuple[str, ...] = ()) -> list[Any]:
        return self.settle(self.machine.on_request(self.peer.ask(type_url, names, again=again)))

    def publish(self, snapshot: Any) -> list[Any]:
        return self.settle(self.machine.on_snapshot(snapshot))

    def settle(self, responses: list[Any]) -> list[Any]:
        received = []
        while responses:
            received += responses
            for response in responses:
                self.peer.take(response)
            responses = [
                more for response in responses for more in self.machine.on_request(self.peer.answer(response))
            ]
        return received

    def resources(self, type_url: str) -> set[str]:
        return set(self.peer.received[type_url].resources)


@pytest.fixture
def talk(xds: SimpleNamespace, variant: str) -> Talk:
    return Talk(xds, variant)


@pytest.fixture
def first(xds: SimpleNamespace) -> list[Any]:
    """Two clusters, their assignments, a listener and its routes."""
    return [
        xds.cluster("a"),
        xds.cluster("b"),
        xds.assignment("a", 10, 20),
        xds.assignment("b", 30),
        xds.listener("front"),
        xds.route("front", "a"),
    ]


def types(responses: list[Any]) -> list[str]:
    return [response.type_url for response in responses]


def without(resources: list[Any], *names: tuple[str, str]) -> list[Any]:
    return [entry for entry in resources if (entry.type_url, entry.name) not in names]


def names_of(response: Any) -> list[str]:
    """Names of the endpoint resources in a response of either variant."""
    bodies = [getattr(entry, "resource", entry) for entry in response.resources]
    return [endpoint_pb2.ClusterLoadAssignment.FromString(body.value).cluster_name for body in bodies]


def subscribe_all(talk: Talk) -> None:
    talk.ask(TYPE_CLUSTER)
    talk.ask(TYPE_ENDPOINT, ("a", "b"))
    talk.ask(TYPE_LISTENER)
    talk.ask(TYPE_ROUTE, ("front",))


def test_responses_wait_for_the_first_snapshot(xds: SimpleNamespace, talk: Talk, first: list[Any]) -> None:
    subscribe_all(talk)
    assert talk.peer.response_types == []
    talk.publish(xds.snapshot(*first))
    assert [kind for kind in RESOURCE_TYPES if kind in talk.peer.response_types] == list(RESOURCE_TYPES)
    assert talk.resources(TYPE_CLUSTER) == {"a", "b"} == talk.resources(TYPE_ENDPOINT)
    assert talk.resources(TYPE_LISTENER) == {"front"} == talk.resources(TYPE_ROUTE)


def test_an_equal_snapshot_and_plain_acks_get_nothing(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    assert talk.publish(xds.snapshot(*reversed(first))) == []


def test_a_weight_change_sends_only_that_assignment(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    changed = [*without(first, (TYPE_ENDPOINT, "b")), xds.assignment("b", 31)]
    (response,) = talk.publish(xds.snapshot(*changed))
    assert response.type_url == TYPE_ENDPOINT
    assert names_of(response) == ["b"]


def test_first_sotw_request_is_answered_at_any_version_and_nonce(
    xds: SimpleNamespace, first: list[Any]
) -> None:
    snapshot = xds.snapshot(*first)
    for type_url in RESOURCE_TYPES:
        machine, peer = xds.machine("sotw"), xds.peer("sotw")
        machine.on_snapshot(snapshot)
        request = peer.ask(type_url, () if type_url in (TYPE_CLUSTER, TYPE_LISTENER) else ("a", "front"))
        request.version_info, request.response_nonce = snapshot.version(type_url), "n1"
        (response,) = machine.on_request(request)
        assert response.resources


def test_unsubscribing_and_subscribing_again_is_answered(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    talk.publish(xds.snapshot(*first))
    talk.ask(TYPE_ENDPOINT, ("a", "b"))
    assert talk.ask(TYPE_ENDPOINT, ("a",)) == []
    (response,) = talk.ask(TYPE_ENDPOINT, ("a", "b"))
    assert names_of(response) == ["b"]


def test_delta_subscribing_to_a_subscribed_name_is_answered(xds: SimpleNamespace, first: list[Any]) -> None:
    talk = Talk(xds, "delta")
    talk.publish(xds.snapshot(*first))
    talk.ask(TYPE_ENDPOINT, ("a", "b"))
    (response,) = talk.ask(TYPE_ENDPOINT, ("a", "b"), again=("a",))
    assert names_of(response) == ["a"]


def test_nack_is_recorded_and_its_content_not_sent_again(
    xds: SimpleNamespace, variant: str, first: list[Any]
) -> None:
    machine, peer = xds.machine(variant), xds.peer(variant)
    machine.on_snapshot(xds.snapshot(*first))
    (response,) = machine.on_request(peer.ask(TYPE_ENDPOINT, ("a",)))
    peer.take(response)
    answer = machine.receive_request(peer.answer(response, "weights must be positive"))
    assert answer is not None
    assert answer.error == "weights must be positive"
    assert machine.on_snapshot(xds.snapshot(*first)) == []
    changed = [*without(first, (TYPE_ENDPOINT, "a")), xds.assignment("a", 1, 1)]
    (second,) = machine.on_snapshot(xds.snapshot(*changed))
    subscription = machine.subscriptions[TYPE_ENDPOINT]
    assert (subscription.nacked_version, subscription.error) == (answer.version, answer.error)
    peer.take(second)
    assert machine.receive_request(peer.answer(second)).error is None
    assert (subscription.nacked_version, subscription.error) == ("", "")


def test_an_answer_counts_once(xds: SimpleNamespace, variant: str, first: list[Any]) -> None:
    machine, peer = xds.machine(variant), xds.peer(variant)
    machine.on_snapshot(xds.snapshot(*first))
    (response,) = machine.on_request(peer.ask(TYPE_CLUSTER))
    peer.take(response)
    assert machine.receive_request(peer.answer(response)) is not None
    assert machine.receive_request(peer.answer(response)) is None


def test_stale_sotw_request_subscribes_and_acks(xds: SimpleNamespace, first: list[Any]) -> None:
    """Each push overtakes the answer to the one before, so no request carries the newest nonce."""
    machine, peer = xds.machine("sotw"), xds.peer("sotw")
    machine.on_snapshot(xds.snapshot(*first))
    (old,) = machine.on_request(peer.ask(TYPE_ENDPOINT, ("a",)))
    changed = [*without(first, (TYPE_ENDPOINT, "a")), xds.assignment("a", 1, 1)]
    (new,) = machine.on_snapshot(xds.snapshot(*changed))
    peer.take(old)
    peer.ask(TYPE_ENDPOINT, ("a", "b"))
    (response,) = machine.on_request(peer.answer(old))
    assert names_of(response) == ["b"], "what is on its way is not sent again"
    subscription = machine.subscriptions[TYPE_ENDPOINT]
    assert subscription.acked_version == old.version_info
    assert subscription.outstanding
    assert machine.receive_request(peer.answer(new)).version == new.version_info
    assert machine.receive_request(peer.answer(old)) is None
    assert subscription.acked_version == new.version_info


def test_a_stale_sotw_request_ends_subscriptions(xds: SimpleNamespace, first: list[Any]) -> None:
    machine, peer = xds.machine("sotw"), xds.peer("sotw")
    machine.on_snapshot(xds.snapshot(*first))
    (old,) = machine.on_request(peer.ask(TYPE_ENDPOINT, ("a", "b")))
    machine.on_snapshot(xds.snapshot(*without(first, (TYPE_ENDPOINT, "a")), xds.assignment("a", 1, 1)))
    peer.ask(TYPE_ENDPOINT, ("a",))
    assert machine.on_request(peer.answer(old)) == []
    changed = [*without(first, (TYPE_ENDPOINT, "b")), xds.assignment("b", 31)]
    assert [names_of(response) for response in machine.on_snapshot(xds.snapshot(*changed))] == [["a"]]


def test_delta_takes_subscriptions_whatever_the_nonce(xds: SimpleNamespace, first: list[Any]) -> None:
    machine, peer = xds.machine("delta"), xds.peer("delta")
    machine.on_snapshot(xds.snapshot(*first))
    machine.on_request(peer.ask(TYPE_ENDPOINT, ("a",)))
    request = peer.ask(TYPE_ENDPOINT, ("a", "b"))
    request.response_nonce = "of another stream"
    (response,) = machine.on_request(request)
    assert names_of(response) == ["b"]


def test_unknown_names_block_nothing_and_arrive_later(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    talk.publish(xds.snapshot(*first))
    (response,) = talk.ask(TYPE_ENDPOINT, ("a", "later"))
    assert names_of(response) == ["a"]
    if talk.peer.variant == "delta":
        assert list(response.removed_resources) == ["later"]
    assert talk.publish(xds.snapshot(*first, xds.assignment("other", 1))) == []
    (response,) = talk.publish(xds.snapshot(*first, xds.assignment("later", 1)))
    assert names_of(response) == ["later"]


def test_first_request_for_unknown_names_gets_an_empty_response(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    talk.publish(xds.snapshot(*first))
    (response,) = talk.ask(TYPE_ENDPOINT, ("nobody",))
    assert not response.resources


@pytest.mark.parametrize("type_url", [TYPE_CLUSTER, TYPE_LISTENER])
def test_no_names_at_first_and_the_star_are_wildcards(
    xds: SimpleNamespace, variant: str, first: list[Any], type_url: str
) -> None:
    for names in ((), ("*",)):
        talk = Talk(xds, variant)
        talk.publish(xds.snapshot(*first))
        talk.ask(type_url, names)
        assert talk.resources(type_url) == set(xds.snapshot(*first).of_type(type_url))
        more = [xds.cluster("new"), xds.listener("new")]
        talk.publish(xds.snapshot(*first, *more))
        assert "new" in talk.resources(type_url)


def test_no_names_are_no_wildcard_for_endpoints(xds: SimpleNamespace, talk: Talk, first: list[Any]) -> None:
    talk.publish(xds.snapshot(*first))
    (response,) = talk.ask(TYPE_ENDPOINT)
    assert not response.resources


def test_no_names_after_names_unsubscribe_from_everything(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    talk.publish(xds.snapshot(*first))
    talk.ask(TYPE_CLUSTER, ("*",))
    talk.ask(TYPE_CLUSTER, ())
    assert talk.publish(xds.snapshot(*first, xds.cluster("new"))) == []


def test_delta_keeps_the_wildcard_beside_names(xds: SimpleNamespace, first: list[Any]) -> None:
    talk = Talk(xds, "delta")
    talk.publish(xds.snapshot(*first))
    talk.ask(TYPE_CLUSTER)
    talk.ask(TYPE_CLUSTER, ("a",))
    talk.publish(xds.snapshot(*first, xds.cluster("new")))
    assert talk.resources(TYPE_CLUSTER) == {"a", "b", "new"}
    # Dropping the name leaves it covered by the wildcard, so the client gets it again.
    (response,) = talk.machine.on_request(talk.peer.ask(TYPE_CLUSTER, ()))
    assert [entry.name for entry in response.resources] == ["a"]


def test_what_is_gone_is_taken_away(xds: SimpleNamespace, talk: Talk, first: list[Any]) -> None:
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    talk.publish(xds.snapshot(*without(first, (TYPE_CLUSTER, "b"), (TYPE_ENDPOINT, "b"))))
    assert talk.resources(TYPE_CLUSTER) == {"a"}
    talk.publish(xds.snapshot(*first))
    assert talk.resources(TYPE_CLUSTER) == {"a", "b"} == talk.resources(TYPE_ENDPOINT)


def test_delta_reconnection_sends_only_what_differs(xds: SimpleNamespace, first: list[Any]) -> None:
    snapshot = xds.snapshot(*first)
    machine, peer = xds.machine("delta"), xds.peer("delta")
    machine.on_snapshot(snapshot)
    request = peer.ask(TYPE_CLUSTER)
    request.initial_resource_versions["a"] = snapshot.of_type(TYPE_CLUSTER)["a"].version
    request.initial_resource_versions["b"] = "of an older time"
    request.initial_resource_versions["gone"] = "of an older time"
    (response,) = machine.on_request(request)
    assert [entry.name for entry in response.resources] == ["b"]
    assert list(response.removed_resources) == ["gone"]


@pytest.mark.parametrize("type_url", [TYPE_ENDPOINT, TYPE_CLUSTER])
def test_delta_reconnection_sends_listed_names_again(
    xds: SimpleNamespace, first: list[Any], type_url: str
) -> None:
    """A cluster that was still warming when its stream broke may lack what it lists."""
    snapshot = xds.snapshot(*first)
    machine, peer = xds.machine("delta"), xds.peer("delta")
    machine.on_snapshot(snapshot)
    request = peer.ask(type_url, ("a",) if type_url == TYPE_ENDPOINT else ("*", "a"))
    for name in ("a", "b"):
        request.initial_resource_versions[name] = snapshot.of_type(type_url)[name].version
    (response,) = machine.on_request(request)
    assert [entry.name for entry in response.resources] == ["a"]
    assert machine.on_request(peer.answer(response)) == []


def test_delta_reconnection_removes_listed_names(xds: SimpleNamespace, first: list[Any]) -> None:
    machine, peer = xds.machine("delta"), xds.peer("delta")
    machine.on_snapshot(xds.snapshot(*first))
    request = peer.ask(TYPE_ENDPOINT, ("gone",))
    request.initial_resource_versions["gone"] = "of an older time"
    (response,) = machine.on_request(request)
    assert (list(response.resources), list(response.removed_resources)) == ([], ["gone"])


def test_empty_assignment_is_sent(xds: SimpleNamespace, talk: Talk) -> None:
    talk.publish(xds.snapshot(xds.assignment("a")))
    (response,) = talk.ask(TYPE_ENDPOINT, ("a",))
    assert names_of(response) == ["a"]


def test_node_is_kept_from_the_first_message(xds: SimpleNamespace, talk: Talk, first: list[Any]) -> None:
    subscribe_all(talk)
    assert talk.machine.client.node_id == "node-1"
    talk.machine.on_request(talk.peer.ask(TYPE_ENDPOINT, ("a",)))
    assert talk.machine.client.node_id == "node-1"


def test_breaches_of_the_protocol_are_the_peers_errors(xds: SimpleNamespace, variant: str) -> None:
    nameless = xds.peer(variant, node="").ask(TYPE_CLUSTER)
    with pytest.raises(PeerError, match="node"):
        xds.machine(variant).on_request(nameless)
    untyped = xds.peer(variant).ask(TYPE_CLUSTER)
    untyped.type_url = ""
    with pytest.raises(PeerError, match="type_url"):
        xds.machine(variant).on_request(untyped)
    with pytest.raises(PeerError, match="type_url"):
        xds.machine(variant, only_type=TYPE_CLUSTER).on_request(xds.peer(variant).ask(TYPE_ENDPOINT, ("a",)))
    many = xds.peer(variant).ask(TYPE_ENDPOINT, tuple(f"name{number}" for number in range(11)))
    with pytest.raises(PeerError, match="11 resource names"):
        xds.machine(variant, max_names=10).on_request(many)


def test_unserved_type_gets_no_response_and_is_counted(
    xds: SimpleNamespace, variant: str, first: list[Any]
) -> None:
    machine = xds.machine(variant)
    machine.on_snapshot(xds.snapshot(*first))
    assert machine.on_request(xds.peer(variant).ask("type.googleapis.com/nobody.knows.It")) == []
    assert machine.unserved_requests == 1


def test_a_separate_service_implies_its_type(xds: SimpleNamespace, variant: str, first: list[Any]) -> None:
    machine = xds.machine(variant, only_type=TYPE_CLUSTER)
    machine.on_snapshot(xds.snapshot(*first))
    request = xds.peer(variant).ask(TYPE_CLUSTER)
    request.type_url = ""
    (response,) = machine.on_request(request)
    assert response.type_url == TYPE_CLUSTER


def test_a_changed_cluster_gets_its_assignment_again_once(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    changed = [*without(first, (TYPE_CLUSTER, "a")), xds.cluster("a", seconds=2)]
    clusters, endpoints = talk.publish(xds.snapshot(*changed))
    assert types([clusters, endpoints]) == [TYPE_CLUSTER, TYPE_ENDPOINT]
    assert names_of(endpoints) == ["a"]
    assert talk.publish(xds.snapshot(*changed)) == []


def test_a_refused_cluster_is_no_warming_loop(xds: SimpleNamespace, variant: str, first: list[Any]) -> None:
    talk = Talk(xds, variant)
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    changed = [*without(first, (TYPE_CLUSTER, "a")), xds.cluster("a", seconds=2)]
    responses = talk.machine.on_snapshot(xds.snapshot(*changed))
    assert types(responses) == [TYPE_CLUSTER, TYPE_ENDPOINT]
    for response in responses:
        talk.peer.take(response)
        assert talk.machine.on_request(talk.peer.answer(response, "no")) == []


def test_resubscription_to_an_unchanged_cluster_warms_nothing(xds: SimpleNamespace, first: list[Any]) -> None:
    talk = Talk(xds, "delta")
    talk.publish(xds.snapshot(*first))
    talk.ask(TYPE_CLUSTER, ("a",))
    talk.ask(TYPE_ENDPOINT, ("a",))
    assert types(talk.ask(TYPE_CLUSTER, ("a",), again=("a",))) == [TYPE_CLUSTER]


def test_two_clusters_with_one_assignment_name(xds: SimpleNamespace, talk: Talk) -> None:
    resources = [xds.cluster("a", service="shared"), xds.assignment("shared", 1)]
    talk.publish(xds.snapshot(*resources))
    talk.ask(TYPE_CLUSTER)
    talk.ask(TYPE_ENDPOINT, ("shared",))
    # Such a client need not ask again: it is subscribed to the name already.
    responses = talk.publish(xds.snapshot(*resources, xds.cluster("b", service="shared")))
    assert types(responses) == [TYPE_CLUSTER, TYPE_ENDPOINT]
    assert names_of(responses[1]) == ["shared"]


def test_reconnection_with_equal_clusters_warms_nothing(
    xds: SimpleNamespace, variant: str, first: list[Any]
) -> None:
    snapshot = xds.snapshot(*first)
    machine, peer = xds.machine(variant), xds.peer(variant)
    machine.on_snapshot(snapshot)
    peer.take(*machine.on_request(peer.ask(TYPE_ENDPOINT, ("a", "b"))))
    request = peer.ask(TYPE_CLUSTER)
    if variant == "sotw":
        request.version_info = snapshot.version(TYPE_CLUSTER)
    else:
        for name, resource in snapshot.of_type(TYPE_CLUSTER).items():
            request.initial_resource_versions[name] = resource.version
    assert types(machine.on_request(request)) == [TYPE_CLUSTER]


def test_make_before_break(xds: SimpleNamespace, talk: Talk, first: list[Any]) -> None:
    """Routes move from a to c: c comes first, and a leaves only after the routes have moved."""
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    kept = without(first, (TYPE_CLUSTER, "a"), (TYPE_ENDPOINT, "a"), (TYPE_ROUTE, "front"))
    moved = [*kept, xds.cluster("c"), xds.assignment("c", 5), xds.route("front", "c")]
    (clusters,) = talk.machine.on_snapshot(xds.snapshot(*moved))
    assert clusters.type_url == TYPE_CLUSTER
    talk.peer.take(clusters)
    assert talk.resources(TYPE_CLUSTER) == {"a", "b", "c"}
    # The client took the cluster, but has no endpoints for it: routes still wait.
    assert talk.machine.on_request(talk.peer.answer(clusters)) == []
    rest = talk.ask(TYPE_ENDPOINT, ("a", "b", "c"))
    order = types(rest)
    assert order[:2] == [TYPE_ENDPOINT, TYPE_ROUTE]
    assert order.index(TYPE_CLUSTER) > order.index(TYPE_ROUTE)
    assert talk.resources(TYPE_CLUSTER) == {"b", "c"}
    assert talk.publish(xds.snapshot(*moved)) == []


def test_one_snapshot_that_changes_everything_keeps_the_order(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    everything = [
        xds.cluster("a", seconds=3),
        xds.cluster("b"),
        xds.assignment("a", 7),
        xds.assignment("b", 8),
        xds.listener("front", "again"),
        xds.route("front", "b"),
    ]
    assert types(talk.publish(xds.snapshot(*everything))) == list(RESOURCE_TYPES)


def test_release_ends_the_wait_of_routes(xds: SimpleNamespace, variant: str, first: list[Any]) -> None:
    machine, peer = xds.machine(variant), xds.peer(variant)
    machine.on_snapshot(xds.snapshot(*first))
    assert types(machine.on_request(peer.ask(TYPE_CLUSTER))) == [TYPE_CLUSTER]
    assert machine.on_request(peer.ask(TYPE_LISTENER)) == []
    assert machine.holding()
    machine.release()
    (listeners,) = machine.on_snapshot(xds.snapshot(*first))
    assert listeners.type_url == TYPE_LISTENER
    assert not machine.holding()


def test_only_the_newest_state_is_computed(xds: SimpleNamespace, variant: str, first: list[Any]) -> None:
    """What changed and changed back while the client could not be written to is never sent."""
    machine, peer = xds.machine(variant), xds.peer(variant)
    machine.receive_request(peer.ask(TYPE_ENDPOINT, ("a",)))
    for weight in range(1, 50):
        snapshot = xds.snapshot(xds.assignment("a", weight))
    peer.take(machine.next_response(snapshot))
    assert peer.received[TYPE_ENDPOINT].resources["a"] == xds.assignment("a", 49).body.value
    assert machine.next_response(snapshot) is None


def test_removals_linger_until_remove_lingering(xds: SimpleNamespace, variant: str, first: list[Any]) -> None:
    """A request that was routed before may still be on its way to a cluster that nothing refers to now."""
    talk = Talk(xds, variant)
    talk.machine = xds.machine(variant, lingers=True)
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    assert not talk.machine.lingering()
    moved = [*without(first, (TYPE_CLUSTER, "a"), (TYPE_ENDPOINT, "a"), (TYPE_ROUTE, "front"))]
    moved.append(xds.route("front", "b"))
    assert types(talk.publish(xds.snapshot(*moved))) == [TYPE_ROUTE]
    assert talk.resources(TYPE_CLUSTER) == {"a", "b"}
    assert talk.machine.lingering()
    # Other changes go out meanwhile, and take nothing away.
    changed = [*without(moved, (TYPE_CLUSTER, "b")), xds.cluster("b", seconds=9)]
    assert TYPE_CLUSTER in types(talk.publish(xds.snapshot(*changed)))
    assert talk.resources(TYPE_CLUSTER) == {"a", "b"}
    talk.machine.remove_lingering()
    talk.publish(xds.snapshot(*changed))
    assert talk.resources(TYPE_CLUSTER) == {"b"}
    assert not talk.machine.lingering()
    # The next removal lingers again.
    back = [*changed, xds.cluster("a"), xds.assignment("a", 1)]
    talk.publish(xds.snapshot(*back))
    assert talk.publish(xds.snapshot(*changed)) == []
    assert talk.machine.lingering()


def test_routes_wait_for_the_secrets_of_new_clusters(
    xds: SimpleNamespace, talk: Talk, first: list[Any]
) -> None:
    """Envoy asks for a secret once it knows the cluster, and the cluster warms until it has it."""
    subscribe_all(talk)
    talk.publish(xds.snapshot(*first))
    tls = [xds.cluster("c", secret="ca"), xds.assignment("c", 5), xds.secret("ca", "x")]
    moved = [*without(first, (TYPE_ROUTE, "front")), *tls, xds.route("front", "c")]
    assert types(talk.publish(xds.snapshot(*moved))) == [TYPE_CLUSTER]
    assert types(talk.ask(TYPE_ENDPOINT, ("a", "b", "c"))) == [TYPE_ENDPOINT]
    assert talk.machine.holding()
    assert types(talk.ask(TYPE_SECRET, ("ca",))) == [TYPE_SECRET, TYPE_ROUTE]
    assert not talk.machine.holding()
    # A changed secret, or a changed cluster whose secret Envoy has, makes nobody wait.
    renewed = [*without(moved, (TYPE_SECRET, "ca"), (TYPE_ROUTE, "front")), xds.secret("ca", "y")]
    renewed += [xds.route("front", "b")]
    assert types(talk.publish(xds.snapshot(*renewed))) == [TYPE_SECRET, TYPE_ROUTE]
    changed = [*without(renewed, (TYPE_CLUSTER, "c"), (TYPE_ROUTE, "front")), xds.route("front", "c")]
    changed += [xds.cluster("c", seconds=3, secret="ca")]
    assert types(talk.publish(xds.snapshot(*changed))) == [TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_ROUTE]


def test_release_ends_the_wait_for_a_secret(xds: SimpleNamespace, talk: Talk, first: list[Any]) -> None:
    subscribe_all(talk)
    tls = [xds.cluster("a", secret="ca"), xds.secret("ca")]
    assert TYPE_ROUTE not in types(talk.publish(xds.snapshot(*without(first, (TYPE_CLUSTER, "a")), *tls)))
    assert talk.machine.holding()
    talk.machine.release()
    later = xds.snapshot(*without(first, (TYPE_CLUSTER, "a")), *tls)
    assert types(talk.publish(later)) == [TYPE_LISTENER, TYPE_ROUTE]


def test_a_secret_goes_after_the_cluster_that_refers_to_it(
    xds: SimpleNamespace, variant: str, first: list[Any]
) -> None:
    talk = Talk(xds, variant)
    talk.machine = xds.machine(variant, lingers=True)
    talk.ask(TYPE_CLUSTER)
    talk.ask(TYPE_SECRET, ("ca",))
    talk.publish(xds.snapshot(xds.cluster("a", secret="ca"), xds.secret("ca"), xds.cluster("b")))
    talk.publish(xds.snapshot(xds.cluster("b")))
    assert talk.resources(TYPE_SECRET) == {"ca"}
    assert talk.resources(TYPE_CLUSTER) == {"a", "b"}
    talk.machine.remove_lingering()
    talk.publish(xds.snapshot(xds.cluster("b")))
    assert talk.resources(TYPE_CLUSTER) == {"b"}
