"""What one client of discovery sends takes bounded memory and work, and no honest client's place."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bench.abuse import discovery
from fleet.errors import PeerError
from fleet.names import TYPE_CLUSTER, TYPE_ENDPOINT
from xds_server.discovery.client import MAX_TEXT
from xds_server.discovery.stream import DiscoveryStream
from xds_server.discovery.stream_state import NameBudget
from xds_server.discovery.subscription import NAME_BYTES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import SimpleNamespace

BOTH = pytest.mark.parametrize("variant", ["sotw", "delta"])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["same_name", "empty_names", "unlike_names"])
def test_names_are_counted_before_they_are_kept(xds: SimpleNamespace, kind: str) -> None:
    machine = xds.machine("sotw", max_names=1000)
    with pytest.raises(PeerError, match="names"):
        machine.receive(discovery.KINDS[kind](4_000_000 if kind == "unlike_names" else 10_000))
    assert not machine.subscriptions or not machine.subscriptions[TYPE_ENDPOINT].names


@BOTH
def test_names_are_bounded_by_their_bytes(xds: SimpleNamespace, variant: str) -> None:
    names = tuple(f"{number}".ljust(1000, "x") for number in range(10))
    few = NameBudget(stream_bytes=9 * (1000 + NAME_BYTES), all_bytes=1 << 30)
    xds.machine(variant, budget=few).on_request(xds.peer(variant).ask(TYPE_ENDPOINT, names[:9]))
    with pytest.raises(PeerError, match="bytes"):
        xds.machine(variant, budget=few).on_request(xds.peer(variant).ask(TYPE_ENDPOINT, names))


@BOTH
def test_names_of_all_streams_are_bounded_and_an_end_gives_room(xds: SimpleNamespace, variant: str) -> None:
    names = tuple(f"{number}".ljust(1000, "x") for number in range(10))
    budget = NameBudget(all_bytes=25 * (1000 + NAME_BYTES))

    def another() -> Any:
        machine = xds.machine(variant, budget=budget)
        machine.on_request(xds.peer(variant).ask(TYPE_ENDPOINT, names))
        return machine

    first, _ = another(), another()
    with pytest.raises(PeerError, match="of all clients"):
        another()
    first.leave()
    another()


def test_delta_names_one_by_one_count_too(xds: SimpleNamespace) -> None:
    budget = NameBudget(stream_bytes=5 * (1000 + NAME_BYTES))
    machine, peer = xds.machine("delta", budget=budget), xds.peer("delta")
    with pytest.raises(PeerError, match="bytes"):
        for number in range(10):
            request = peer.ask(TYPE_ENDPOINT)
            request.resource_names_subscribe.append(f"{number}".ljust(1000, "x"))
            machine.receive_request(request)
    assert len(machine.subscriptions[TYPE_ENDPOINT].names) == 6


@BOTH
def test_dropped_names_give_room(xds: SimpleNamespace, variant: str) -> None:
    budget = NameBudget(stream_bytes=2 * (1000 + NAME_BYTES))
    machine = xds.machine(variant, budget=budget)
    for number in range(10):
        names = (f"{number}".ljust(1000, "x"),)
        request = xds.peer(variant).ask(TYPE_ENDPOINT, names)
        if variant == "delta" and number:
            request.resource_names_unsubscribe.append(f"{number - 1}".ljust(1000, "x"))
        machine.receive_request(request)


@pytest.mark.parametrize("field", ["id", "cluster", "region", "zone", "sub_zone"])
def test_a_nodes_texts_are_bounded(xds: SimpleNamespace, field: str) -> None:
    for size, fits in ((MAX_TEXT, True), (MAX_TEXT + 1, False)):
        request = xds.peer("sotw").ask(TYPE_CLUSTER)
        setattr(request.node if field in ("id", "cluster") else request.node.locality, field, "x" * size)
        machine = xds.machine("sotw")
        if fits:
            machine.receive_request(request)
        else:
            with pytest.raises(PeerError, match=f"{size} characters"):
                machine.receive_request(request)


def test_a_version_that_is_none_of_ours_is_not_kept(xds: SimpleNamespace) -> None:
    machine, peer = xds.machine("sotw"), xds.peer("sotw")
    request = peer.ask(TYPE_CLUSTER)
    request.version_info = "x" * 100_000
    machine.receive_request(request)
    assert len(machine.subscriptions[TYPE_CLUSTER].first_version) < 1000
    delta, request = xds.machine("delta"), xds.peer("delta").ask(TYPE_ENDPOINT, ("a",))
    request.initial_resource_versions["a"] = "x" * 100_000
    delta.receive_request(request)
    assert delta.subscriptions[TYPE_ENDPOINT].returned == {}


FULL = {
    kind: discovery.KINDS[kind](1_900_000)
    for kind in ("same_name", "empty_names", "locators", "extensions", "error", "node_id")
}


@pytest.mark.parametrize("kind", FULL)
def test_a_request_is_bounded_before_it_is_parsed(
    xds: SimpleNamespace, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = xds.machine("sotw")
    monkeypatch.setattr(machine, "decode", lambda _: pytest.fail("it is parsed"))
    with pytest.raises(PeerError, match="allowed"):
        machine.receive(FULL[kind])


@BOTH
def test_the_most_names_are_still_taken(xds: SimpleNamespace, variant: str) -> None:
    names = tuple(f"{number:05d}".ljust(80, "x") for number in range(20_000))
    request = xds.peer(variant).ask(TYPE_ENDPOINT, names)
    request.node.extensions.add(name="x" * 200_000)
    if variant == "delta":
        request.initial_resource_versions.update(dict.fromkeys(names[:5000], "v"))
    machine = xds.machine(variant)
    machine.receive(request.SerializeToString())
    assert len(machine.subscriptions[TYPE_ENDPOINT].names) == 20_000


async def once(message: bytes) -> AsyncIterator[bytes]:
    """Say one thing, and wait."""
    yield message
    await asyncio.sleep(60)


async def test_a_message_beyond_the_limit_is_not_read(serve: Any) -> None:
    channel = (await serve()).channel()
    for kind in ("same_name", "unlike_names", "node_id", "extensions", "metadata", "error", "type_url"):
        call: Any = channel.stream_stream(discovery.METHOD)(once(discovery.KINDS[kind](4_000_000)))
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, kind


@pytest.mark.parametrize("kind", ["same_name", "empty_names"])
async def test_a_rejected_stream_leaves_no_garbage(serve: Any, kind: str) -> None:
    """It would keep messages of a megabyte each until it runs."""
    running = await serve()
    logging.disable(logging.CRITICAL)  # Records would keep the errors.
    gc.collect()
    gc.disable()
    try:
        attack = discovery.attack(running.target, kind, 900_000, streams=2, seconds=60.0)
        attacking = asyncio.create_task(attack)
        await until(lambda: running.value("peer_errors_total") >= 5)
        attacking.cancel()
        await asyncio.wait([attacking])
        await running.idle()
        await asyncio.sleep(0.1)
        left = [each for each in gc.get_objects() if isinstance(each, PeerError | DiscoveryStream)]
        assert not left
    finally:
        gc.enable()
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("serve", ["bare"], indirect=True)
async def test_streams_that_say_nothing_keep_no_client_out(xds: SimpleNamespace, serve: Any) -> None:
    running = await serve(max_streams=3)
    running.store.set(xds.snapshot(xds.cluster("a")))
    attack = asyncio.create_task(discovery.attack(running.target, "nothing", streams=9, seconds=60.0))
    await until(lambda: running.value("streams") >= 3)

    async def served(node: str) -> bool:
        client = running.connect("sotw", node=node)
        try:
            await client.ask(TYPE_CLUSTER)
            return set((await client.receive(TYPE_CLUSTER)).resources) == {"a"}
        except grpc.aio.AioRpcError:
            return False  # Among streams that have just begun; an Envoy connects again too.

    for number in range(3):
        for attempt in range(3):
            if await served(f"honest-{number}-{attempt}"):
                break
        else:
            pytest.fail("kept out")
    assert running.value("streams") <= 2 * 3 + 1
    attack.cancel()
    await asyncio.wait([attack])


def test_names_fill_both_limits_exactly() -> None:
    budget = NameBudget(stream_bytes=100, all_bytes=150)
    budget.change(0, 100)
    budget.change(0, 50)
    for before, now in ((0, 1), (100, 101), (50, 51)):
        with pytest.raises(PeerError):
            budget.change(before, now)
    budget.change(100, 0)
    budget.change(50, 100)
