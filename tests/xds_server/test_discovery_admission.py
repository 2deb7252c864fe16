"""A fleet that reconnects at once is served in turn; nobody is refused, and nobody served waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from fleet.names import TYPE_CLUSTER
from xds_server.discovery.admission import Admission, TokenBucket

if TYPE_CHECKING:
    from types import SimpleNamespace

NEVER = 1e-6
"""Streams a second: one in eleven days."""


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    bucket = TokenBucket(10.0, 3)
    for _ in range(3):
        assert bucket.wait_seconds(100.0) == 0.0
        bucket.take()
    assert bucket.wait_seconds(100.0) == pytest.approx(0.1)
    assert bucket.wait_seconds(100.06) == pytest.approx(0.04)
    assert bucket.wait_seconds(100.11) == 0.0


def test_a_bucket_that_rests_holds_no_more_than_its_burst() -> None:
    bucket = TokenBucket(10.0, 2)
    assert bucket.wait_seconds(0.0) == 0.0
    for _ in range(2):
        assert bucket.wait_seconds(1000.0) == 0.0
        bucket.take()
    assert bucket.wait_seconds(1000.0) > 0.0


async def test_turns_are_taken_in_order_and_those_who_left_take_none() -> None:
    admission = Admission(per_second=100.0, burst=1)
    began: list[int] = []

    async def stream(number: int) -> None:
        await admission.enter()
        began.append(number)

    tasks = [asyncio.create_task(stream(number)) for number in range(5)]
    await asyncio.sleep(0)
    assert began == [0]
    tasks[1].cancel()
    tasks[3].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert began == [0, 2, 4]


async def test_over_the_rate_streams_wait_and_all_are_served(xds: SimpleNamespace, serve: Any) -> None:
    """Also those that came before the first snapshot."""
    running = await serve(admission=Admission(per_second=200.0, burst=2))
    clients = [running.connect("sotw", node=f"node-{number}") for number in range(8)]
    for client in clients:
        await client.ask(TYPE_CLUSTER)
    async with asyncio.timeout(60):
        while len(running.service.clients()) < len(clients):
            await asyncio.sleep(0.005)
    running.store.set(xds.snapshot(xds.cluster("a")))
    for client in clients:
        await client.receive(TYPE_CLUSTER)
    assert running.value("streams_delayed_total") > 0
    assert running.value("streams_rejected_total") == 0


async def test_who_waits_holds_nobody_up_and_can_be_drained(xds: SimpleNamespace, serve: Any) -> None:
    running = await serve(admission=Admission(per_second=NEVER, burst=1))
    running.store.set(xds.snapshot(xds.cluster("a")))
    served = running.connect("sotw", node="served")
    await served.ask(TYPE_CLUSTER)
    await served.receive(TYPE_CLUSTER)
    waiting = running.connect("sotw", node="waiting")
    await waiting.ask(TYPE_CLUSTER)
    async with asyncio.timeout(60):
        while len(running.service.clients()) < 2:
            await asyncio.sleep(0.005)
    running.store.set(xds.snapshot(xds.cluster("a", seconds=2)))
    await served.receive(TYPE_CLUSTER)
    await running.service.drain(0.01)
    assert await waiting.call(TYPE_CLUSTER).code() is grpc.StatusCode.UNAVAILABLE
    assert waiting.peer.response_types == []
    await running.idle()
