"""Floods of frames on one connection: the right error in time, bounded memory, and no cost for others."""

from __future__ import annotations

import itertools
import time

import pytest

from fleet.lane.budget import Budget
from fleet.lane.limits import Limits
from testing import lane_client as wire
from testing.lane_client import (
    INITIAL_WINDOW_SIZE,
    Client,
    data,
    deep_bytes,
    grpc_message,
    headers,
    settings,
    window_update,
)
from testing.lane_floods import floods

_STREAMS = 200
_MESSAGE_BYTES = 1 << 20
_BATCH, _BATCHES, _MOST_BATCHES = 50, 60, 1200
"""Frames that arrive at once; batches of a flood that may go on, and until one that may not has ended."""
_MOST_BYTES = 2_000_000
"""Of a connection and what it has, with a budget of a few messages."""


@pytest.mark.parametrize("name", floods())
def test_flood_ends_or_costs_nothing(name: str) -> None:
    """Another connection with the same budget goes on."""
    flood = floods()[name]
    budget = Budget(2 * _MESSAGE_BYTES, _MESSAGE_BYTES, spare_bytes=_MESSAGE_BYTES)
    hostile, honest = (Client(Limits(streams=_STREAMS, message_bytes=_MESSAGE_BYTES), budget) for _ in "ab")
    hostile.handshake(*flood.first)
    hostile.send(flood.opening)
    honest.handshake((INITIAL_WINDOW_SIZE, 1 << 20))
    honest.send(window_update(0, 1 << 20))
    most = 0
    for number in range(_MOST_BATCHES if flood.code else _BATCHES):
        hostile.send(b"".join(itertools.islice(flood.frames, _BATCH)))
        hostile.forget()
        stir(budget, hostile, honest)
        if hostile.connection.closing:
            break
        if number % 50 == 49:
            most = max(most, deep_bytes(hostile.connection))
    assert max(most, deep_bytes(hostile.connection)) < _MOST_BYTES
    assert hostile.goaway == flood.code
    content = bytes(300_000)
    honest.send(headers(1), data(1, grpc_message(content)[:50_000]))
    for _ in range(10):
        if honest.of(wire.WINDOW_UPDATE, 1):
            break
        budget.relieve()
        stir(budget, hostile, honest)
    honest.send(data(1, grpc_message(content)[50_000:], end=True))
    assert honest.messages(1) == [content]
    assert honest.status(1) == "0"
    hostile.lose()
    assert (budget.reserved, budget.unfinished, budget.unread, budget.waiting) == (0, 0, 0, 0)


def stir(budget: Budget, *clients: Client) -> None:
    """Let the connections go on that another one's frames have changed."""
    while budget.stirred:
        stirred = budget.stirred.pop()
        for client in clients:
            if client.connection is stirred:
                client.send(b"")


def test_a_frame_of_many_windows_costs_no_more() -> None:
    """A frame reads each open stream once, not once for each value: 100 frames would stop the server."""
    client = Client(Limits(streams=5_000))
    client.handshake()
    client.send(*(headers(number) for number in range(1, 10_001, 2)))

    def seconds(count: int) -> float:
        began = time.process_time()
        client.send(settings(*[(INITIAL_WINDOW_SIZE, 1)] * count))
        return time.process_time() - began

    assert min(seconds(100) for _ in range(5)) < 20 * max(seconds(1) for _ in range(5))


def test_an_open_stream_takes_a_kibibyte() -> None:
    """With its headers; without what it has of a message."""
    client = Client(Limits(streams=5_000))
    client.handshake()
    before = deep_bytes(client.connection)
    client.send(b"".join(headers(number) for number in range(1, 10_001, 2)))
    client.forget()
    assert client.connection.streams == 5_000
    assert deep_bytes(client.connection) - before < 5_000 * 1024
