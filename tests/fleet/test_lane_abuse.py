"""Clients that cost more than they use: the connection ends, and honest clients do not notice the limits."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from hpack import Encoder

from fleet.lane import frames as h2
from fleet.lane import limits
from fleet.lane.budget import Budget
from fleet.lane.connection import Connection
from tests.fleet.lane_client import REQUEST, Client, block, data, message, request

if TYPE_CHECKING:
    from collections.abc import Iterator


def endless(head: bytes, frame: bytes) -> Iterator[bytes]:
    yield head
    while True:
        yield frame * 100


FLOODS = {
    "PING": endless(b"", h2.frame(h2.PING, 0, 0, bytes(8)) * 100),
    "SETTINGS": endless(b"", h2.settings({h2.INITIAL_WINDOW_SIZE: 1000})),
    "many settings": endless(b"", h2.frame(h2.SETTINGS, 0, 0, h2.SETTING.pack(9, 9) * 101)),
    "empty DATA": endless(request(3), data(3, b"")),
    "DATA of padding": endless(request(3), data(3, b"", padding=255)),
    "PRIORITY": endless(b"", h2.frame(h2.PRIORITY, 0, 3, bytes(5))),
    "WINDOW_UPDATE of the connection": endless(b"", h2.window_update(0, 1)),
    "WINDOW_UPDATE of a stream": endless(request(3), h2.window_update(3, 1)),
    "CONTINUATION": endless(h2.frame(h2.HEADERS, 0, 3), h2.frame(h2.CONTINUATION, 0, 3, bytes(1000))),
    "empty CONTINUATION": endless(h2.frame(h2.HEADERS, 0, 3), h2.frame(h2.CONTINUATION, 0, 3)),
    "a header block that is too large": endless(b"", h2.frame(h2.HEADERS, 0, 3, bytes(70_000))),
    "rapid reset": (request(n) + h2.reset(n, h2.CANCEL) for n in count(3, 2)),
    "malformed requests": (h2.frame(h2.HEADERS, h2.END_HEADERS, n, block(("a", "b"))) for n in count(3, 2)),
    "faults that make the server reset": (request(n) + h2.window_update(n, 0) for n in count(3, 2)),
}


@pytest.mark.parametrize("case", FLOODS)
def test_a_flood_ends_its_connection(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FRUITLESS_STREAMS", 500)
    client, written = Client(), 0
    for sent in FLOODS[case]:
        client.connection.receive(sent)
        if client.connection.closing:
            break
        written += len(client.connection.take())
    assert client.reads()[-1].endswith("ENHANCE_YOUR_CALM")
    assert written < 1_000_000


@pytest.mark.parametrize(
    "frame",
    [
        h2.frame(h2.PING, 0, 0, bytes(8)),
        h2.frame(0xBE, 0, 0),
    ],
)
def test_an_idle_connection_may_ping_for_years(frame: bytes) -> None:
    client = Client()
    for _ in range(30):
        client.sends(frame * 900)
        client.reads()
    assert not client.connection.closing


def test_a_client_may_reset_what_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Envoy ends each of its streams by a reset."""
    monkeypatch.setattr(limits, "FRUITLESS_STREAMS", 500)
    client = Client(window=2**30)
    stream = iter(range(3, 2**31, 2))
    for _ in range(limits.FRUITLESS_STREAMS // 100 + 5):
        for number in (next(stream) for _ in range(100)):
            client.connection.receive(request(number) + message(number, 4))
            client.connection.send(number, b"reply")
            client.connection.receive(h2.reset(number, h2.CANCEL))
        client.connection.take()
    assert not client.connection.closing


def test_a_standstill_of_the_service_is_no_flood() -> None:
    """Envoy resets all streams that wait for a reply at once."""
    client = Client()
    numbers = range(3, 3 + 2 * 5000, 2)
    client.sends(b"".join(map(request, numbers)))
    events = client.sends(b"".join(h2.reset(number, h2.CANCEL) for number in numbers))
    assert len(events) == 5000
    assert not client.connection.closing


def test_a_reader_of_single_bytes_is_served() -> None:
    """Its windows open byte by byte; each update brings a frame."""
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: 0})
    client.sends(request(3))
    client.connection.send(3, bytes(3000))
    client.reads()
    for _ in range(3005):
        assert client.answer(h2.window_update(3, 1)) == ["DATA 3 1"]
    assert client.budget.unread == 0


def test_a_header_bomb_is_refused() -> None:
    """Small indexes of a large entry, before the client has emptied its table."""
    connection = Connection(limits.Limits(), Budget(1, 1))
    first = Encoder().encode((*REQUEST, ("x", "y" * 3900)))
    bomb = block(*REQUEST) + b"\xbe" * 10_000
    call = h2.frame(h2.HEADERS, h2.END_HEADERS, 1, first) + h2.frame(h2.HEADERS, h2.END_HEADERS, 3, bomb)
    connection.receive(h2.PREFACE + h2.settings({}) + call)
    assert connection.closing
