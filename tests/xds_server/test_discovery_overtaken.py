"""A client far away: responses overtake its answers and its new names, in any order of the two directions."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT

if TYPE_CHECKING:
    from types import SimpleNamespace

NAMES = ("a", "b", "c")
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.sampled_from(NAMES)),
        st.tuples(st.just("name"), st.sampled_from(NAMES)),
        st.tuples(st.sampled_from(("receive", "take")), st.just("")),
    ),
    max_size=40,
)


class FarAway:
    """A client and a machine with both directions between them as queues."""

    def __init__(self, xds: SimpleNamespace, variant: str, type_url: str) -> None:
        self._xds, self._type_url = xds, type_url
        self.machine, self.peer = xds.machine(variant), xds.peer(variant)
        self.content = dict.fromkeys(NAMES, 1)
        self.names: set[str] = set()
        self.requests: deque[Any] = deque()
        self.responses: deque[Any] = deque()
        self.sent: Counter[bytes] = Counter()

    def make(self, name: str) -> Any:
        number = self.content[name]
        if self._type_url == TYPE_ENDPOINT:
            return self._xds.assignment(name, number)
        return self._xds.cluster(name, seconds=number)

    def push(self, name: str = "") -> None:
        if name:
            self.content[name] += 1
        self._note(self.machine.on_snapshot(self._xds.snapshot(*map(self.make, NAMES))))

    def name(self, name: str) -> None:
        if name not in self.names:
            self.names.add(name)
            self.requests.append(self.peer.ask(self._type_url, self.names))

    def receive(self) -> None:
        if self.requests:
            self._note(self.machine.on_request(self.requests.popleft()))

    def take(self) -> None:
        if self.responses:
            response = self.responses.popleft()
            self.peer.take(response)
            self.requests.append(self.peer.answer(response))

    def _note(self, made: list[Any]) -> None:
        for response in made:
            self.sent.update(getattr(entry, "resource", entry).value for entry in response.resources)
        self.responses.extend(made)


@pytest.mark.untraced
@pytest.mark.parametrize("type_url", [TYPE_ENDPOINT, TYPE_CLUSTER])
@pytest.mark.parametrize("variant", ["sotw", "delta"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_steps)
def test_names_count_on_arrival_and_content_comes_once(
    xds: SimpleNamespace, variant: str, type_url: str, steps: list[tuple[str, str]]
) -> None:
    """Whether or not any request carries the newest nonce."""
    far = FarAway(xds, variant, type_url)
    far.push()
    far.name("a")
    far.receive()
    subscription = far.machine.subscriptions[type_url]
    for kind, name in steps:
        if name:
            getattr(far, kind)(name)
        else:
            getattr(far, kind)()
        if not far.requests:
            assert subscription.names == far.names
    while far.requests or far.responses:
        far.receive()
        far.take()
    assert far.peer.received[type_url].resources == {name: far.make(name).body.value for name in far.names}
    assert not subscription.outstanding
    assert subscription.acked_version == subscription.sent_version
    if type_url == TYPE_ENDPOINT or variant == "delta":
        assert max(far.sent.values()) == 1


def test_a_name_is_served_while_every_answer_is_overtaken(xds: SimpleNamespace) -> None:
    far = FarAway(xds, "sotw", TYPE_ENDPOINT)
    far.push()
    far.name("a")
    far.receive()
    far.take()
    far.receive()
    far.push("a")
    far.name("b")
    for _ in range(10):
        far.push("a")
        far.take()
        far.receive()
    assert "b" in far.peer.received[TYPE_ENDPOINT].resources
    assert len(far.responses) <= 3, "no answer makes a response of its own"
