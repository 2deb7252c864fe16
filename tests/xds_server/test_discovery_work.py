"""The cost of a message follows its content, not the client's earlier subscriptions."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from xds_server.discovery import subscription as subscription_module
from xds_server.discovery.changes import ABSENT, Sent, split_removed
from xds_server.discovery.delta import Delta
from xds_server.discovery.shared_response import SharedResponseCache, cached_decoder
from xds_server.discovery.sotw import Sotw
from xds_server.discovery.stream_state import DEFAULT_MAX_NAMES, NameBudget
from xds_server.discovery.subscription import NAME_BYTES, VERSION_BYTES, WILDCARD, Subscription
from xds_server.snapshot.snapshot import Resource, Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from types import SimpleNamespace

BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])


def names_of(count: int, size: int = 0) -> tuple[str, ...]:
    return tuple(f"{number:06d}".ljust(size, "x") for number in range(count))


def drain(machine: Any, snapshot: Snapshot) -> None:
    while machine.next_response(snapshot) is not None:
        pass


def test_small_message_is_cheap_on_a_stream_with_many_names(
    xds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0

    def counted(lost: Iterable[str], returned: Mapping[str, str], forced: Collection[str]) -> Any:
        nonlocal looked
        names = list(lost)
        looked += len(names)
        return split_removed(names, returned, forced)

    monkeypatch.setattr(subscription_module, "split_removed", counted)
    snapshot = xds.snapshot(xds.assignment("real", 1))
    machine, peer = xds.machine("delta", lingers=True), xds.peer("delta")
    machine.receive_request(peer.ask(TYPE_ENDPOINT, names_of(5000)))
    drain(machine, snapshot)
    key = machine.subscriptions[TYPE_ENDPOINT].key
    looked = 0
    for number in range(20):
        machine.receive_request(peer.ask(TYPE_ENDPOINT, (*names_of(5000), f"z{number}")))
        drain(machine, snapshot)
        machine.receive_request(peer.ask(TYPE_ENDPOINT, names_of(5000)))
        drain(machine, snapshot)
    assert looked < 20 * 20
    assert machine.subscriptions[TYPE_ENDPOINT].key == key


def compared(subscription: Subscription, snapshot: Snapshot) -> tuple[set[str], set[str], set[str]]:
    """Changed, missing and gone names, by looking at all there is."""
    here = snapshot.of_type(subscription.type_url)
    candidates = {name for name in here if subscription.covers(name)} | subscription.names
    changed = {
        name
        for name in candidates & here.keys()
        if name in subscription.forced or subscription.returned.get(name) != here[name].version
    }
    lost = (candidates | subscription.returned.keys() | subscription.forced) - here.keys()
    gone, missing = split_removed(lost, subscription.returned, subscription.forced)
    return changed, set(missing), set(gone)


@pytest.mark.parametrize("seed", range(60))
def test_changes_are_what_a_comparison_of_everything_finds(seed: int) -> None:
    chance = random.Random(seed)
    pool = ("a", "b", "c", "d", "e", "f")
    subscription = Subscription(TYPE_CLUSTER, max_names=100)

    def some() -> list[str]:
        return chance.sample((*pool, WILDCARD), chance.randrange(4))

    def snapshot() -> Snapshot:
        there = [name for name in pool if chance.random() < 0.6]
        return Snapshot.of([Resource.of(name, TYPE_CLUSTER, b"%d" % chance.randrange(2)) for name in there])

    newest = snapshot()
    subscription.begin(
        some(), {name: chance.choice(("old", "0" * 16)) for name in pool if chance.random() < 0.3}
    )
    for step in range(80):
        kind = chance.randrange(7)
        if kind == 0:
            subscription.add(some())
        elif kind == 1:
            subscription.drop(some())
        elif kind == 2:
            subscription.replace(some())
        elif kind == 3:
            newest = snapshot()
        elif kind == 4 and subscription.nonce:
            subscription.answer(subscription.nonce, chance.choice((None, "no")))
        elif kind == 5:
            subscription.force(chance.choice(pool)) if subscription.wildcard else None
        changes = subscription.changes(newest)
        changed, missing, gone = compared(subscription, newest)
        sent = {entry.name for entry in changes.changed}
        if len(sent) == 1 and subscription._needs_own_response(*sent):
            assert sent <= changed
        else:
            assert (sent, {*changes.missing}, {*changes.gone}) == (changed, missing, gone)
        if chance.random() < 0.5:
            subscription.record(changes)
            carried = {entry.name: entry.version for entry in changes.changed}
            carried.update(dict.fromkeys(changes.gone, ABSENT))
            subscription.sent(f"n{step}", Sent(newest.version(TYPE_CLUSTER), carried))
        assert subscription._chosen_bytes >= sum(map(len, subscription.names))
        assert subscription.key == (
            len(subscription.names),
            sum(map(hash, subscription.names)),
            subscription.wildcard,
        )


@BOTH
def test_names_are_counted_as_they_come_and_go(xds: SimpleNamespace, variant: str) -> None:
    chance = random.Random(1)
    machine, peer, pool = xds.machine(variant), xds.peer(variant), names_of(30, 50)
    for _ in range(100):
        names = tuple(chance.sample(pool, chance.randrange(1, 30)))
        machine.receive_request(peer.ask(TYPE_ENDPOINT, names))
        assert machine.subscriptions[TYPE_ENDPOINT].names == set(names)
        assert machine._name_bytes == len(names) * (50 + NAME_BYTES)


def test_versions_that_a_client_says_that_it_holds_count(xds: SimpleNamespace) -> None:
    request = xds.peer("delta").ask(TYPE_CLUSTER)
    for name in names_of(10):
        request.initial_resource_versions[name] = "v" * 64
    machine = xds.machine("delta")
    machine.receive_request(request)
    assert machine._name_bytes == 10 * (6 + NAME_BYTES + 64 + VERSION_BYTES)


def test_a_list_of_one_name_is_not_kept(xds: SimpleNamespace) -> None:
    """Each of its texts would be one of its own."""
    request = xds.peer("sotw").ask(TYPE_ENDPOINT)
    request.resource_names.extend(["x" * 90] * DEFAULT_MAX_NAMES)
    message = request.SerializeToString()
    del request
    machine = xds.machine("sotw")
    tracemalloc.start()
    try:
        machine.receive(message)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()


@BOTH
def test_an_honest_client_of_a_large_fleet_has_room(xds: SimpleNamespace, variant: str) -> None:
    machine, names = xds.machine(variant), names_of(DEFAULT_MAX_NAMES, 100)
    for kind in (TYPE_CLUSTER, TYPE_ENDPOINT):
        request = xds.peer(variant).ask(kind, names)
        if variant == "delta":
            for name in names:
                request.initial_resource_versions[name] = "0" * 16
        machine.receive_request(request)
    assert len(machine.subscriptions[TYPE_ENDPOINT].names) == DEFAULT_MAX_NAMES


def test_nothing_is_kept_of_names_whose_clients_have_left(xds: SimpleNamespace) -> None:
    first, second = (xds.snapshot(xds.assignment("real", weight)) for weight in (1, 2))
    plans, budget = SharedResponseCache(Delta.compose, "p"), NameBudget()
    tracemalloc.start()
    try:
        for number in range(4):
            machine = xds.machine("delta", lingers=True, shared_responses=plans, budget=budget)
            machine.receive_request(xds.peer("delta").ask(TYPE_ENDPOINT, names_of(5000, 40 + number)))
            drain(machine, first)
            machine.next_response(second)
            machine.leave()
            del machine
        gc.collect()
        assert budget._used == 0
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


@BOTH
def test_missing_names_are_not_kept_with_each_response(xds: SimpleNamespace, variant: str) -> None:
    """A client that never answers could have the names of sixteen responses kept."""
    machine, peer = xds.machine(variant), xds.peer(variant)
    snapshot = xds.snapshot(xds.assignment("real", 1))
    for number in range(5):
        machine.receive_request(peer.ask(TYPE_ENDPOINT, [f"{number}-{name}" for name in names_of(100)]))
        drain(machine, snapshot)
    assert all(not sent.carried for sent in machine.subscriptions[TYPE_ENDPOINT].unanswered.values())


@pytest.mark.io
@BOTH
async def test_streams_take_turns(xds: SimpleNamespace, serve: Any, variant: str) -> None:
    running = await serve()
    running.store.set(xds.snapshot(xds.cluster("a")))
    client = running.connect(variant)
    turns = running.service._turns
    turns._spent = True
    await client.ask(TYPE_CLUSTER)
    await asyncio.sleep(0.1)
    assert running.service.clients() == []
    turns._begin_slice()
    assert set((await client.receive(TYPE_CLUSTER)).resources) == {"a"}


@BOTH
def test_what_a_client_says_of_itself_is_not_remembered(xds: SimpleNamespace, variant: str) -> None:
    """Its node may take fifty times its bytes, and the memory is that of the process."""
    kind, peer = {"sotw": Sotw, "delta": Delta}[variant], xds.peer(variant)
    request = peer.ask(TYPE_ENDPOINT, ("a",))
    alike = [kind.decode(request.SerializeToString()) for _ in range(2)]
    assert alike[0] is not alike[1]
    request.ClearField("node")
    alike = [kind.decode(request.SerializeToString()) for _ in range(2)]
    assert alike[0] is alike[1]
    request.error_detail.message = "no"
    alike = [kind.decode(request.SerializeToString()) for _ in range(2)]
    assert alike[0] is not alike[1]


def test_messages_are_remembered_up_to_so_many_bytes() -> None:
    decoded_count = 0

    def decode(message: bytes) -> Any:
        nonlocal decoded_count
        decoded_count += 1
        return discovery_pb2.DiscoveryRequest.FromString(message)

    decoded = cached_decoder(decode)
    for number in range(128):
        decoded(
            discovery_pb2.DiscoveryRequest(resource_names=[f"{number}".ljust(30_000)]).SerializeToString()
        )
    newest = discovery_pb2.DiscoveryRequest(resource_names=["127".ljust(30_000)]).SerializeToString()
    oldest = discovery_pb2.DiscoveryRequest(resource_names=["0".ljust(30_000)]).SerializeToString()
    decoded_count = 0
    decoded(newest)
    assert decoded_count == 0
    decoded(oldest)
    assert decoded_count == 1
