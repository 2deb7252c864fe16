"""Floods of frames on one connection: the right error in time, bounded memory, and no cost for others."""

from __future__ import annotations

import itertools
import time

import hpack
import pytest

from fleet.lane import limits
from fleet.lane.budget import Budget
from fleet.lane.limits import Limits
from testing import lane_client as wire
from testing.lane_client import (
    CANCEL,
    END_HEADERS,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    PRIORITY,
    REQUEST,
    Client,
    data,
    deep_bytes,
    frame,
    grpc_message,
    headers,
    ping,
    reset,
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


@pytest.mark.untraced
@pytest.mark.parametrize("name", floods())
def test_flood_ends_or_costs_nothing(name: str) -> None:
    """Another connection with the same budget goes on."""
    flood = floods()[name]
    budget = Budget(2 * _MESSAGE_BYTES, _MESSAGE_BYTES, unfinished_bytes=_MESSAGE_BYTES)
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
    assert (budget.permitted, budget.unfinished, budget.unread, budget.waiting) == (0, 0, 0, 0)


def stir(budget: Budget, *clients: Client) -> None:
    """Let the connections go on that another one's frames have changed."""
    while budget.stirred:
        stirred = budget.stirred.pop()
        for client in clients:
            if client.connection is stirred:
                client.send(b"")


@pytest.mark.parametrize("idle", [ping(), frame(0xBE)], ids=["PING", "unknown"])
def test_an_idle_connection_may_ping_for_years(idle: bytes) -> None:
    client = Client()
    client.handshake()
    for _ in range(30):
        client.send(idle * 900)
    assert not client.connection.closing


def test_a_client_may_reset_what_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoy ends each of its streams by a reset."""
    monkeypatch.setattr(limits, "FRUITLESS_STREAMS", 500)
    client = Client()
    client.handshake()
    for stream in range(1, 2001, 2):
        client.send(headers(stream), data(stream, grpc_message(b"body")))
        client.watched.send(stream, b"reply")
        client.send(reset(stream))
    assert not client.connection.closing


@pytest.mark.parametrize("cut", [0, 3])
def test_a_client_may_reset_its_requests(monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    """In `observability_mode` ext_proc answers nothing, and Envoy resets each stream."""
    monkeypatch.setattr(limits, "FRUITLESS_STREAMS", 500)
    client, body = Client(), grpc_message(b"body")
    client.handshake()
    for stream in range(1, 2001, 2):
        client.send(headers(stream), data(stream, body[:cut]), data(stream, body[cut:]), reset(stream))
    assert not client.connection.closing


def test_refused_calls_are_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Well-formed requests of another kind: each costs as much as a call."""
    monkeypatch.setattr(limits, "FRUITLESS_STREAMS", 500)
    client = Client()
    client.handshake()
    page = tuple(field for field in wire.REQUEST if field[0] != "content-type")
    for stream in range(1, 2001, 2):
        client.send(headers(stream, page, end=True))
        client.watched.take()
    assert client.connection.closing


def test_a_standstill_of_the_service_is_no_flood() -> None:
    """Envoy resets all streams that wait for a reply at once."""
    client = Client(Limits())
    client.handshake()
    numbers = range(1, 10_001, 2)
    client.send(b"".join(map(headers, numbers)))
    client.send(b"".join(map(reset, numbers)))
    assert client.ended() == list(numbers)
    assert not client.connection.closing


def test_a_reader_of_single_bytes_is_served() -> None:
    """Its windows open byte by byte; each update brings a frame."""
    client = Client()
    client.handshake((INITIAL_WINDOW_SIZE, 0))
    client.send(headers(1))
    client.watched.send(1, bytes(3000))
    client.taken()
    for _ in range(3005):
        assert [len(one.payload) for one in client.send(window_update(1, 1))] == [1]
    assert client.budget.unread == 0


def test_a_header_bomb_is_refused() -> None:
    """Small indexes of a large entry, before the client has emptied its table."""
    encoder, client = hpack.Encoder(), Client()
    first = encoder.encode((*REQUEST, ("x", "y" * 3000)))
    bomb = encoder.encode(REQUEST) + b"\xbe" * 1000
    client.send(PREFACE, settings(), frame(HEADERS, END_HEADERS, 1, first))
    client.send(frame(HEADERS, END_HEADERS, 3, bomb))
    assert client.opened() == [1]
    assert client.connection.closing


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


@pytest.mark.parametrize(
    ("limit", "useless", "a_stream"),
    [
        ("PRIORITY_FRAMES", frame(PRIORITY, 0, 1, b"\0\0\0\0\1"), 100),
        ("EMPTY_FRAMES", data(1, b""), 1),
        ("WINDOW_FRAMES", window_update(0, 1), 4),
        ("LATE_FRAMES", data(3, b"x"), 20),
    ],
)
def test_streams_allow_frames(
    monkeypatch: pytest.MonkeyPatch, limit: str, useless: bytes, a_stream: int
) -> None:
    monkeypatch.setattr(limits, limit, 5)
    client = Client()
    client.handshake()
    client.send(headers(1), headers(3))
    client.watched.reset(3, CANCEL)
    client.send(useless * (5 + 2 * a_stream))
    assert not client.connection.closing
    client.send(useless)
    assert client.connection.closing
