"""Floods of frames on one connection: the right error in time, bounded memory, and no cost for others."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

import pytest

from fleet.lane.budget import Budget
from fleet.lane.limits import BLOCK_BYTES, FRAME_BYTES, Limits
from testing import lane_client as wire
from testing.lane_client import (
    CONTINUATION,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PRIORITY,
    REQUEST,
    Client,
    block,
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

if TYPE_CHECKING:
    from collections.abc import Iterator

_STREAMS = 200
_MESSAGE_BYTES = 1 << 20
_BATCH, _BATCHES, _MOST_BATCHES = 50, 60, 1200
"""Frames that arrive at once; batches of a flood that may go on, and until one that may not has ended."""
_MOST_BYTES = 2_000_000
"""Of a connection and what it has, with a budget of a few messages."""


class Flood(NamedTuple):
    """Frames without end, and the code of the GOAWAY that ends them; None: they may go on, at no cost."""

    frames: Iterator[bytes]
    code: int | None = wire.ENHANCE_YOUR_CALM
    opening: bytes = b""
    first: tuple[tuple[int, int], ...] = ()


def numbers() -> Iterator[int]:
    return itertools.count(1, 2)


def floods() -> dict[str, Flood]:
    """Return the floods, not yet begun."""
    forever = itertools.repeat
    prefix = grpc_message(b"hello")
    return {
        "resets": Flood(headers(number) + reset(number) for number in numbers()),
        "resets behind a message": Flood(
            headers(number) + data(number, prefix) + reset(number) for number in numbers()
        ),
        "malformed requests": Flood(headers(number, REQUEST[1:]) for number in numbers()),
        "streams that the server resets": Flood(
            headers(number) + window_update(number, 0) for number in numbers()
        ),
        "SETTINGS": Flood(forever(settings())),
        "settings": Flood(forever(settings(*[(INITIAL_WINDOW_SIZE, 1)] * 2000))),
        "PING": Flood(forever(ping() * 2000)),
        "PING that is answered": Flood(forever(ping()), None),
        "empty DATA": Flood(forever(data(1)), opening=headers(1)),
        "padded DATA": Flood(forever(data(1, pad=9)), opening=headers(1)),
        "DATA of a closed stream": Flood(forever(data(1, b"x") * 20), None, opening=headers(1, end=True)),
        "DATA of closed streams": Flood(
            (data(number, b"x") * 50 for number in numbers()), None, opening=headers(99_999, end=True)
        ),
        "DATA of a stream that the client reset": Flood(
            forever(data(1, b"x") * 20), None, opening=headers(1) + reset(1)
        ),
        "frames of streams that the server reset": Flood(
            forever((data(1, b"x") + headers(1, end=True)) * 10),
            None,
            opening=headers(1) + window_update(1, 0),
        ),
        "PRIORITY": Flood(forever(frame(PRIORITY, 0, 1, b"\0\0\0\0\1"))),
        "WINDOW_UPDATE": Flood(forever(window_update(0, 1))),
        "WINDOW_UPDATE of a stream": Flood(forever(window_update(1, 1)), opening=headers(1)),
        "empty CONTINUATION": Flood(
            forever(frame(CONTINUATION, 0, 1)), opening=frame(HEADERS, 0, 1, block())
        ),
        "CONTINUATION": Flood(
            itertools.chain(
                [frame(HEADERS, 0, 1, block())], forever(frame(CONTINUATION, 0, 1, bytes(16_384)))
            )
        ),
        "long CONTINUATION": Flood(
            itertools.chain(
                [frame(HEADERS, 0, 1, block())], forever(frame(CONTINUATION, 0, 1, bytes(999_999)))
            )
        ),
        "a long header block": Flood(iter([frame(HEADERS, END_HEADERS, 1, bytes(BLOCK_BYTES + 1))])),
        "the head of a long header block": Flood(iter([frame(HEADERS, 0, 1, b"", length=FRAME_BYTES)])),
        "unknown frames": Flood(forever(frame(0x16, 0, 0, bytes(999))), None),
        "GOAWAY": Flood(forever(frame(GOAWAY, 0, 0, bytes(999))), None),
        "refused streams": Flood((headers(number) for number in numbers()), None),
        "half messages": Flood(
            (headers(number) + data(number, grpc_message(bytes(60_000))[:-1]) for number in numbers()), None
        ),
        "beginnings of long messages": Flood(
            (headers(number) + data(number, grpc_message(bytes(500_000))[:9_000]) for number in numbers()),
            None,
        ),
        "unread replies": Flood(
            (headers(number) + data(number, grpc_message(bytes(60_000)), end=True) for number in numbers()),
            None,
            first=((INITIAL_WINDOW_SIZE, 0),),
        ),
        "replies read by the byte": Flood(
            (
                headers(number)
                + data(number, grpc_message(bytes(9_000)), end=True)
                + window_update(number, 1)
                for number in numbers()
            ),
            None,
            first=((INITIAL_WINDOW_SIZE, 0),),
        ),
    }


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
