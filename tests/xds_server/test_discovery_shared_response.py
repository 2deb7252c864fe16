"""Shared responses: streams that use them send and record the same as by the ordering alone."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.envoy_api.google.rpc import status_pb2
from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.errors import PeerError
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE
from xds_server.discovery.delta import Delta
from xds_server.discovery.shared_response import SharedResponseCache, cached_decoder, nonce_field
from xds_server.discovery.sotw import Sotw

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import SimpleNamespace

    from xds_server.discovery.stream_state import StreamState
    from xds_server.snapshot.snapshot import Resource, Snapshot

VARIANTS: dict[str, type[Sotw | Delta]] = {"sotw": Sotw, "delta": Delta}
RESPONSES: dict[str, Any] = {
    "sotw": discovery_pb2.DiscoveryResponse,
    "delta": discovery_pb2.DeltaDiscoveryResponse,
}
REQUESTS: dict[str, Any] = {
    "sotw": discovery_pb2.DiscoveryRequest,
    "delta": discovery_pb2.DeltaDiscoveryRequest,
}
NAMES = ("a", "b", "c")


@pytest.fixture(params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Fleet:
    """Machines with common responses, over bytes as the stream passes them."""

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.shared_responses = SharedResponseCache(VARIANTS[variant].compose, "shared")
        self._nonces = itertools.count(1)

    def machine(self, **keywords: Any) -> StreamState:
        return VARIANTS[self.variant](
            lambda: f"n{next(self._nonces)}", shared_responses=self.shared_responses, **keywords
        )


class Client:
    """One machine with a peer at the other end that checks all responses."""

    def __init__(self, xds: SimpleNamespace, fleet: Fleet, node: str = "node-1") -> None:
        self.machine = fleet.machine()
        self.peer = xds.peer(fleet.variant, node)
        self._kind = RESPONSES[fleet.variant]

    def ask(self, type_url: str, names: Sequence[str] = ()) -> None:
        self.machine.receive(self.peer.ask(type_url, names).SerializeToString())

    def written(self, snapshot: Snapshot) -> list[bytes]:
        """Every response, answered at once."""
        responses = []
        while (response := self.machine.next_response(snapshot)) is not None:
            responses.append(response.data)
            message = self._kind.FromString(response.data)
            self.peer.take(message)
            self.machine.receive(self.peer.answer(message).SerializeToString())
        return responses

    def everything(self, names: Sequence[str] = ("a", "b")) -> None:
        self.ask(TYPE_CLUSTER)
        self.ask(TYPE_ENDPOINT, names)
        self.ask(TYPE_LISTENER)
        self.ask(TYPE_ROUTE, ("front",))


def resources(xds: SimpleNamespace, a: int, b: int = 1) -> Snapshot:
    return xds.snapshot(  # type: ignore[no-any-return]
        xds.cluster("a"),
        xds.cluster("b"),
        xds.assignment("a", a),
        xds.assignment("b", b),
        xds.listener("front"),
        xds.route("front", "a"),
    )


def test_streams_that_are_alike_write_the_same_object(xds: SimpleNamespace, variant: str) -> None:
    fleet = Fleet(variant)
    clients = [Client(xds, fleet, f"node-{number}") for number in range(3)]
    for client in clients:
        client.everything()
        client.written(resources(xds, 1))
        assert client.machine.clean
    for weight in (2, 3):
        newest = resources(xds, weight)
        written = [client.written(newest) for client in clients]
        assert [len(responses) for responses in written] == [1, 1, 1]
        assert written[0][0] is written[1][0] is written[2][0]
        for client in clients:
            subscription = client.machine.subscriptions[TYPE_ENDPOINT]
            assert subscription.acked_version == newest.version(TYPE_ENDPOINT)
            assert not subscription.unanswered


def test_other_names_get_other_responses(xds: SimpleNamespace, variant: str) -> None:
    fleet = Fleet(variant)
    subscribed = [("a", "b"), ("b",), ("a",), ("a", "unknown")]
    clients = [Client(xds, fleet, f"node-{number}") for number in range(len(subscribed))]
    for client, names in zip(clients, subscribed, strict=True):
        client.everything(names)
        client.written(resources(xds, 1, 1))
        client.machine.release()
        client.written(resources(xds, 1, 1))
        assert client.machine.clean
    newest = resources(xds, 2, 1)
    assert [len(client.written(newest)) for client in clients] == [1, 0, 1, 1]
    newest = resources(xds, 2, 2)
    assert [len(client.written(newest)) for client in clients] == [1, 1, 0, 0]
    for client, names in zip(clients, subscribed, strict=True):
        # The peer has asserted that nothing came that it did not ask for.
        received = client.peer.received[TYPE_ENDPOINT].resources
        assert received == {
            name: newest.of_type(TYPE_ENDPOINT)[name].body.value for name in {*names} & {"a", "b"}
        }


def test_content_that_goes_back_and_forth_repeats_no_nonce(xds: SimpleNamespace, variant: str) -> None:
    """The peer asserts it; two clients, so that cached responses are met again."""
    fleet = Fleet(variant)
    clients = [Client(xds, fleet, f"node-{number}") for number in range(2)]
    for client in clients:
        client.everything()
    one, other = resources(xds, 1), resources(xds, 2)
    for newest in (one, other, one, other, one, other):
        for client in clients:
            assert client.written(newest)


def test_nack_of_a_shared_response_is_recorded_and_not_answered(xds: SimpleNamespace, variant: str) -> None:
    """Two clients refuse in the same words, which are no ACK of a third."""
    fleet = Fleet(variant)
    clients = [Client(xds, fleet, f"node-{number}") for number in range(3)]
    for client in clients:
        client.everything()
        client.written(resources(xds, 1))
    newest = resources(xds, 2)
    for client in clients[:2]:
        response = client.machine.next_response(newest)
        assert response is not None
        message = RESPONSES[variant].FromString(response.data)
        client.peer.take(message)
        answer = client.machine.receive(client.peer.answer(message, "no").SerializeToString())
        assert answer is not None
        assert (answer.version, answer.error) == (newest.version(TYPE_ENDPOINT), "no")
        subscription = client.machine.subscriptions[TYPE_ENDPOINT]
        assert subscription.acked_version == resources(xds, 1).version(TYPE_ENDPOINT)
        assert client.machine.next_response(newest) is None
    clients[2].written(newest)
    # The recognised ACK arrives late and matches no response.
    assert clients[0].machine.receive(clients[2].peer.answer(message).SerializeToString()) is None
    clients[0].written(resources(xds, 3))
    subscription = clients[0].machine.subscriptions[TYPE_ENDPOINT]
    assert (subscription.nacked_version, subscription.error) == ("", "")


def test_endpoints_in_a_shared_response_end_the_hold(xds: SimpleNamespace, variant: str) -> None:
    client = Client(xds, Fleet(variant))
    client.everything()
    first = [xds.cluster("a"), xds.listener("front")]
    client.machine.next_response(xds.snapshot(*first))
    client.machine.release()
    while client.machine.next_response(xds.snapshot(*first)) is not None:
        pass
    assert client.machine.clean
    late = xds.assignment("a", 1)
    assert client.machine.next_response(xds.snapshot(*first, late)) is not None
    assert client.machine.clean
    # From the next change of clusters on listeners would wait again, for endpoints that are still missing.
    changed = xds.snapshot(xds.cluster("a"), xds.cluster("b", seconds=2), xds.listener("front", "2"), late)
    kinds = []
    while (response := client.machine.next_response(changed)) is not None:
        kinds.append(response.type_url)
        message = RESPONSES[variant].FromString(response.data)
        client.machine.receive(
            REQUESTS[variant](type_url=message.type_url, response_nonce=message.nonce).SerializeToString()
        )
    assert (kinds[0], kinds[-1]) == (TYPE_CLUSTER, TYPE_LISTENER)


def test_an_ack_recognised_by_its_bytes_keeps_its_names(xds: SimpleNamespace) -> None:
    """SotW lists names in each request: the recognised bytes list `b`, which this client has dropped."""
    fleet = Fleet("sotw")
    clients = [Client(xds, fleet, f"node-{number}") for number in range(2)]
    for client in clients:
        client.everything()
        client.written(resources(xds, 1))
    newest = resources(xds, 2)
    clients[0].written(newest)
    changing = clients[1]
    response = changing.machine.next_response(newest)
    assert response is not None
    message = RESPONSES["sotw"].FromString(response.data)
    changing.peer.take(message)
    usual = changing.peer.answer(message).SerializeToString()
    changing.ask(TYPE_ENDPOINT, ("a",))
    assert changing.machine.subscriptions[TYPE_ENDPOINT].names == {"a"}
    changing.machine.receive(usual)
    assert changing.machine.subscriptions[TYPE_ENDPOINT].names == {"a", "b"}
    again = changing.machine.next_response(newest)
    assert again is not None
    (resource,) = RESPONSES["sotw"].FromString(again.data).resources
    assert resource == newest.of_type(TYPE_ENDPOINT)["b"].body


def test_a_subscription_with_an_ack_is_answered(xds: SimpleNamespace, variant: str) -> None:
    fleet = Fleet(variant)
    client = Client(xds, fleet)
    client.everything(("a",))
    client.written(resources(xds, 1))
    # Listeners and routes wait for the cluster whose endpoints this client does not want.
    assert not client.machine.clean
    client.machine.release()
    client.written(resources(xds, 2))
    client.written(resources(xds, 3))
    assert client.machine.clean
    client.ask(TYPE_ENDPOINT, ("a", "b"))
    assert not client.machine.clean
    assert len(client.written(resources(xds, 3))) == 1
    assert client.machine.clean


def test_bytes_that_are_no_request_are_the_peers_error(variant: str) -> None:
    machine = Fleet(variant).machine()
    for _ in range(2):
        with pytest.raises(PeerError, match="no discovery request"):
            machine.receive(b"\xff\xff\xff")


def test_a_nonce_can_be_added_to_serialised_responses(variant: str) -> None:
    body = RESPONSES[variant](type_url=TYPE_ROUTE)
    assert RESPONSES[variant].FromString(body.SerializeToString() + nonce_field("x" * 200)) == RESPONSES[
        variant
    ](type_url=TYPE_ROUTE, nonce="x" * 200)


def test_cached_bodies_are_bounded_and_made_again(xds: SimpleNamespace) -> None:
    made: list[str] = []

    def compose(_: str, version: str, __: Sequence[Resource], ___: Sequence[str]) -> bytes:
        made.append(version)
        return bytes(6 * 1024 * 1024)

    cache = SharedResponseCache(compose, "p")
    for version in ("1", "2", "1", "3", "1"):
        cache.body(TYPE_ENDPOINT, version, (), ())
    assert made == ["1", "2", "3", "1"], "two of six megabytes fit into sixteen, three do not"
    made.clear()
    small = SharedResponseCache(lambda *_: made.append("") or b"", "p")  # type: ignore[func-returns-value]
    for _ in range(2):
        for number in range(100):
            small.body(TYPE_ENDPOINT, str(number), (), ())
    assert len(made) == 200


def test_only_small_messages_are_cached() -> None:
    decoded: list[int] = []

    def read(message: bytes) -> Any:
        decoded.append(len(message))
        return discovery_pb2.DiscoveryRequest.FromString(message)

    decode = cached_decoder(read)
    small, large = (
        discovery_pb2.DiscoveryRequest(version_info="x" * size).SerializeToString() for size in (8, 100_000)
    )
    for _ in range(2):
        decode(small)
        decode(large)
    assert decoded == [len(small), len(large), len(large)]


# What may happen to one stream; the names are chosen from few, so that states are met again.
_names = st.sets(st.sampled_from((*NAMES, "*")), max_size=3)
_steps = st.one_of(
    st.tuples(st.just("publish"), st.integers(0, 11)),
    st.tuples(st.just("publish"), st.integers(0, 3)),
    st.tuples(st.just("write"), st.integers(1, 3)),
    st.tuples(st.just("answer"), st.sampled_from(("oldest", "newest", "twice")), st.booleans()),
    st.tuples(st.just("ask"), st.sampled_from((TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_ROUTE)), _names, _names),
    st.tuples(st.just("again"), _names),
    st.tuples(st.just("timers")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("settle"), st.integers(0, 3)),
)


def _published(xds: SimpleNamespace) -> list[Snapshot]:
    """Neighbours differ in weights, later ones in everything; the last two equal others but as objects."""
    fixed = [xds.cluster("a"), xds.cluster("b"), xds.listener("front"), xds.route("front", "a")]
    both = [xds.assignment("a", 1), xds.assignment("b", 1)]
    contents = [
        [*fixed, *both],
        [*fixed, xds.assignment("a", 2), both[1]],
        [*fixed, both[0], xds.assignment("b", 2)],
        [*fixed, xds.assignment("a", 3), xds.assignment("b", 3)],
        [*fixed, both[0]],
        [*fixed, *both, xds.assignment("c", 1)],
        [*fixed[1:], *both],
        [xds.cluster("a", seconds=2), *fixed[1:], *both],
        [*fixed[:3], xds.route("front", "b"), *both],
        [xds.cluster("c"), xds.assignment("c", 1), *fixed[2:3], xds.route("front", "c")],
        [*fixed, *both],
        [*fixed, xds.assignment("a", 2), both[1]],
    ]
    return [xds.snapshot(*content) for content in contents]


class Twin:
    """The same events to a machine with shared responses and to one without; each has its own nonces."""

    def __init__(self, fleet: Fleet, quick: StreamState, slow: StreamState) -> None:
        self.fleet = fleet
        self.machines = (quick, slow)
        self.unanswered: list[tuple[Any, Any]] = []
        self.last: dict[str, tuple[Any, Any]] = {}
        self.names: dict[str, set[str]] = {}
        self.nonces: set[str] = set()

    def write(self, snapshot: Snapshot, most: int) -> None:
        for _ in range(most):
            responses = [machine.next_response(snapshot) for machine in self.machines]
            self.same_state()
            if None in responses:
                assert responses == [None, None]
                waits = [(machine.holding(), machine.lingering()) for machine in self.machines]
                assert waits[0] == waits[1]
                return
            quick, slow = responses
            assert quick is not None
            assert slow is not None
            pair = tuple(RESPONSES[self.fleet.variant].FromString(sent.data) for sent in (quick, slow))
            assert pair[0].nonce not in self.nonces, "a nonce repeats"
            self.nonces.add(pair[0].nonce)
            blank = [type(message).FromString(message.SerializeToString()) for message in pair]
            for message in blank:
                message.nonce = ""
            assert blank[0] == blank[1]
            self.unanswered.append(pair)
            self.last[pair[0].type_url] = pair

    def receive(self, make: Callable[[int], Any]) -> None:
        answers = [
            machine.receive(make(index).SerializeToString()) for index, machine in enumerate(self.machines)
        ]
        assert answers[0] == answers[1]
        self.same_state()

    def same_state(self) -> None:
        quick, slow = (machine.subscriptions for machine in self.machines)
        assert quick.keys() == slow.keys()
        for type_url, subscription in quick.items():
            for name in ("names", "wildcard", "returned", "forced", "initial_response_pending",
                         "sent_version", "acked_version", "nacked_version", "error", "full_resources",
                         "outstanding"):  # fmt: skip
                assert getattr(subscription, name) == getattr(slow[type_url], name), name
            assert [*subscription.unanswered.values()] == [*slow[type_url].unanswered.values()]

    def request(self, type_url: str, index: int, *, nonce: str | None = None) -> Any:
        request = REQUESTS[self.fleet.variant](type_url=type_url)
        if not self.machines[index].client:
            request.node.id = "node"
        if nonce is None and type_url in self.last:
            nonce = self.last[type_url][index].nonce
        request.response_nonce = nonce or ""
        if self.fleet.variant == "sotw":
            request.resource_names.extend(sorted(self.names.get(type_url, ())))
        return request

    def timers(self) -> None:
        for machine in self.machines:
            machine.release()
            machine.remove_lingering()

    def settle(self, snapshot: Snapshot) -> None:
        """Write and answer until there is no more to say."""
        self.write(snapshot, 20)
        while self.unanswered:
            self.answer("oldest", refuse=False)
            self.write(snapshot, 20)

    def ask(self, type_url: str, names: set[str], dropped: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        self.names[type_url] = names

        def make(index: int) -> Any:
            request = self.request(type_url, index, nonce=None if self.fleet.variant == "sotw" else "")
            if self.fleet.variant == "delta":
                request.resource_names_subscribe.extend(sorted(names))
                request.resource_names_unsubscribe.extend(sorted(dropped))
            return request

        self.receive(make)

    def answer(self, which: str, *, refuse: bool) -> None:
        if not self.unanswered:
            return
        pair = self.unanswered[0 if which == "oldest" else -1]
        if which != "twice":
            self.unanswered.remove(pair)

        def make(index: int) -> Any:
            request = self.request(pair[0].type_url, index, nonce=pair[index].nonce)
            if refuse:
                request.error_detail.CopyFrom(status_pb2.Status(code=13, message="no"))
            return request

        self.receive(make)


@pytest.mark.untraced
@pytest.mark.parametrize("variant", VARIANTS)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), lingers=st.booleans())
def test_shared_responses_equal_those_of_the_ordering(
    xds: SimpleNamespace, variant: str, data: st.DataObject, lingers: bool
) -> None:
    """Random snapshots, answers and subscriptions; a second stream shares the responses."""
    fleet = Fleet(variant)
    count = itertools.count(1)
    twins = [
        Twin(
            fleet,
            fleet.machine(lingers=lingers),
            VARIANTS[variant](lambda: f"s{next(count)}", lingers=lingers),
        )
        for _ in range(2)
    ]
    published = _published(xds)
    newest = published[0]
    for twin in twins:
        for type_url, names in ((TYPE_CLUSTER, set()), (TYPE_ENDPOINT, {"a", "b"}), (TYPE_ROUTE, {"front"})):
            twin.ask(type_url, names)
        twin.settle(newest)
        assert twin.machines[0].clean
        assert not twin.machines[1].clean
    for step in data.draw(st.lists(st.tuples(st.sampled_from((0, 1, 2)), _steps), min_size=10, max_size=40)):
        for twin in twins if step[0] == 2 else twins[step[0] : step[0] + 1]:
            newest = _play(twin, step[1], newest, published)
    for twin in twins:
        twin.settle(newest)


def _play(twin: Twin, step: tuple[Any, ...], newest: Snapshot, published: list[Snapshot]) -> Snapshot:
    match step:
        case ("publish", int(number)):
            newest = published[number]
            twin.write(newest, 3)
        case ("write", int(most)):
            twin.write(newest, most)
        case ("answer", str(which), bool(refuse)):
            twin.answer(which, refuse=refuse)
        case ("ask", str(type_url), names, dropped):
            twin.ask(type_url, set(names), set(dropped))
        case ("again", names):
            twin.ask(TYPE_ENDPOINT, {"a", "b"} | (names - {"*"}))
        case ("timers",):
            twin.timers()
        case ("settle", *numbers):
            newest = published[numbers[0]] if numbers else newest
            twin.settle(newest)
    return newest
