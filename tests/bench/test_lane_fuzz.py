"""The fuzz of the lane: what it makes, that it finds a broken rule, and a small run of it."""

from __future__ import annotations

import pytest

from bench import lane_fuzz
from bench.lane_fuzz import make, play, play_batch, recordings
from fleet.lane.connection import Connection, Event, HalfClosed
from testing import lane_client as wire
from testing.lane_client import PREFACE, Client, frame, frames, grpc_message

SAVED = [(11, 108), (11, 235), (11, 146), (11, 218), (11, 719)]
"""Seed and number of inputs that have broken a rule once, or that end their connection by a rare code."""


def test_some_hundred_inputs_break_no_rule() -> None:
    outcomes, broken = play_batch(seed=11, begin=0, end=800)
    assert broken == []
    assert outcomes.total() == 800
    assert {"open", *(f"goaway {code}" for code in (0, 1, 3, 6, 9, 11))} <= outcomes.keys()


@pytest.mark.parametrize(("seed", "number"), SAVED)
def test_saved_inputs_break_no_rule(seed: int, number: int) -> None:
    assert play(seed, number)


def test_an_input_is_the_same_whenever_it_is_made() -> None:
    assert make(5, 17) == make(5, 17)
    assert len({make(5, number) for number in range(50)}) > 45


@pytest.mark.parametrize("size", [1, 1000, 1 << 20])
@pytest.mark.parametrize("number", range(2), ids=["envoy", "grpcio"])
def test_recorded_clients_are_served(number: int, size: int) -> None:
    """Each message arrives, whatever pieces the bytes come in."""
    client = Client()
    sent = PREFACE + b"".join(recordings()[number])
    client.send(*(sent[at : at + size] for at in range(0, len(sent), size)))
    assert not client.connection.closing, client.connection.error
    assert client.connection.streams == 0
    expected: dict[int, bytes] = dict.fromkeys(client.opened(), b"")
    for one in frames(sent[len(PREFACE) :]):
        if one.kind == wire.DATA:
            expected[one.stream] += one.payload
    assert {call: b"".join(map(grpc_message, client.messages(call))) for call in expected} == expected
    assert sum(map(len, expected.values())) > 70_000


def test_a_connection_that_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(Connection, "_window_update", raises)
    monkeypatch.setattr(Connection, "receive", raises)
    _, broken = play_batch(seed=11, begin=0, end=20)
    assert broken
    assert all("RecursionError" in entry["error"] for entry in broken)


def test_a_wrong_order_of_events_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Connection.receive

    def receive(self: Connection, data: bytes) -> list[Event]:
        return [each for event in real(self, data) for each in (event,) * (1 + isinstance(event, HalfClosed))]

    monkeypatch.setattr(Connection, "receive", receive)
    _, broken = play_batch(seed=11, begin=0, end=20)
    assert broken
    assert all("half-closed" in entry["error"] for entry in broken)


def test_wrong_frames_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Connection.take
    monkeypatch.setattr(Connection, "take", lambda self: (got := real(self)) and got + frame(wire.DATA, 0, 1))
    _, broken = play_batch(seed=11, begin=0, end=20)
    assert len(broken) > 10


def test_memory_that_grows_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_fuzz, "_MOST_BYTES", 0)
    assert play_batch(seed=11, begin=0, end=20)[1]
