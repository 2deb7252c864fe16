"""Flow control both ways, and the memory that connections share."""

from __future__ import annotations

import pytest

from fleet.lane import frames as h2
from fleet.lane.budget import Budget
from fleet.lane.limits import OUTPUT_BYTES, STREAM_WINDOW, WINDOW_BATCH
from tests.fleet.lane_client import MIB, Client, data, message, prefixed, request


def part(stream: int, size: int, sent: int) -> bytes:
    """The first `sent` bytes of a message's DATA, its prefix included."""
    payload = prefixed(bytes(size))[:sent]
    return b"".join(data(stream, payload[at : at + 16_384]) for at in range(0, len(payload), 16_384))


def rest(stream: int, size: int, sent: int) -> bytes:
    payload = prefixed(bytes(size))[sent:]
    return b"".join(data(stream, payload[at : at + 16_384]) for at in range(0, len(payload), 16_384))


def test_small_messages_need_no_window() -> None:
    client = Client()
    assert client.answer(request(3), message(3, 30_000)) == []


def test_half_a_window_is_renewed() -> None:
    client = Client()
    assert client.answer(request(3), message(3, 40_000, frame_bytes=65_536)) == ["WINDOW_UPDATE 3 40005"]


def test_a_large_message_needs_one_window_update() -> None:
    """Which leaves a whole window for the next one."""
    client = Client()
    size = 1_000_000
    assert client.answer(request(3), part(3, size, 20_000)) == [f"WINDOW_UPDATE 3 {size + 5}"]
    assert client.budget.reserved == size
    assert client.sends(rest(3, size, 20_000)) == [f"message 3 {size}"]
    assert client.reads() == []
    assert client.budget.reserved == 0
    assert client.sends(message(3, STREAM_WINDOW - 5)) == [f"message 3 {STREAM_WINDOW - 5}"]


@pytest.mark.parametrize("frame_bytes", [100, 16_384, 700_000])
@pytest.mark.parametrize("sizes", [[50_000] * 4, [700, 220_000, 0, 65_530, 65_531, 300_000]])
def test_a_client_that_waits_for_windows_never_stalls(sizes: list[int], frame_bytes: int) -> None:
    client = Client()
    client.sends(request(3))
    window = STREAM_WINDOW
    payload = b"".join(prefixed(bytes(size)) for size in sizes)
    events, at = [], 0
    while at < len(payload):
        length = min(window, frame_bytes, len(payload) - at)
        assert length, "the window is shut"
        events += client.sends(data(3, payload[at : at + length]))
        at += length
        window += sum(int(words.split()[2]) for words in client.reads()) - length
    assert events == [f"message 3 {size}" for size in sizes]
    assert (client.budget.unfinished, client.budget.reserved) == (0, 0)


def test_padding_does_not_use_up_a_messages_window() -> None:
    client = Client()
    client.sends(request(3))
    window, payload, at, events = STREAM_WINDOW, prefixed(bytes(60_000)), 0, []
    while at < len(payload):
        size = min(200, len(payload) - at)
        assert window >= size + 256
        events += client.sends(data(3, payload[at : at + size], padding=255))
        at += size
        window += sum(int(words.split()[2]) for words in client.reads()) - size - 256
    assert events == ["message 3 60000"]


def test_a_large_frame_is_read_as_it_arrives() -> None:
    client = Client()
    client.sends(request(3), part(3, 900_000, 5))
    frame = data(3, bytes(900_000))
    assert [client.sends(frame[at : at + 65_536]) for at in range(0, len(frame), 65_536)][-1] == [
        "message 3 900000"
    ]


def test_a_paused_stream_has_its_window_and_no_more() -> None:
    """Another stream of its connection goes on."""
    client = Client()
    client.sends(request(3), request(5))
    client.connection.pause(3)
    assert client.answer(message(3, 40_000)) == []
    assert client.answer(message(5, 40_000)) == ["WINDOW_UPDATE 5 40005"]
    assert client.answer(part(3, 100_000, 1000)) == [], "a larger message waits for the end of the pause"
    client.connection.resume(3)
    assert client.reads() == ["WINDOW_UPDATE 3 140010"]
    assert client.sends(rest(3, 100_000, 1000)) == ["message 3 100000"]
    assert client.budget.reserved == 0


def test_the_connections_window_is_renewed_in_batches() -> None:
    client = Client()
    size = 4 * MIB
    updates = []
    for stream in range(3, 3 + 2 * (WINDOW_BATCH // size + 1), 2):
        updates += client.answer(
            request(stream), part(stream, size, 5), rest(stream, size, 5), h2.reset(stream, 0)
        )
    (total,) = [int(words.split()[1]) for words in updates if words.count(" ") == 1]
    assert total >= WINDOW_BATCH


def test_messages_wait_in_line_for_memory() -> None:
    """In the order of their prefixes, across connections."""
    budget = Budget(1_000_000, MIB)
    first, second = Client(budget=budget), Client(budget=budget)
    assert first.answer(request(3), part(3, 700_000, 5)) == ["WINDOW_UPDATE 3 700005"]
    assert second.answer(request(3), part(3, 400_000, 5)) == []
    assert first.answer(request(5), part(5, 200_000, 5)) == [], "not before the one in front of it"
    assert budget.waiting == 2
    assert first.sends(rest(3, 700_000, 5)) == ["message 3 700000"]
    assert second.connection in budget.stirred
    assert second.reads() == ["WINDOW_UPDATE 3 400005"]
    assert first.reads() == ["WINDOW_UPDATE 5 200005"]
    assert budget.waiting == 0
    assert second.sends(rest(3, 400_000, 5)) == ["message 3 400000"]


@pytest.mark.parametrize(
    "leaves",
    [lambda c: c.sends(h2.reset(5, 0)), lambda c: c.connection.end(5), lambda c: c.connection.lost()],
)
def test_a_stream_that_ends_leaves_the_line(leaves) -> None:  # type: ignore[no-untyped-def]
    budget = Budget(1_000_000, MIB)
    first, second, third = (Client(budget=budget) for _ in range(3))
    first.sends(request(3), part(3, 700_000, 5))
    second.sends(request(5), part(5, 500_000, 5))
    third.sends(request(3), part(3, 200_000, 5))
    assert budget.waiting == 2
    leaves(second)
    assert budget.waiting == 0
    assert third.reads() == ["WINDOW_UPDATE 3 200005"]
    assert budget.unfinished == 0
    assert budget.reserved == 900_000


def test_a_message_waits_until_it_fits() -> None:
    client = Client(budget=Budget(1_000_000, MIB))
    for stream, size in ((3, 300_000), (5, 600_000), (7, 500_000)):
        client.sends(request(stream), part(stream, size, 5))
    client.reads()
    assert client.answer(rest(3, 300_000, 5)) == []
    assert client.answer(h2.reset(5, 0)) == ["WINDOW_UPDATE 7 500005"]


def test_a_message_above_the_whole_memory_waits_its_turn() -> None:
    client = Client(budget=Budget(100_000, MIB))
    client.sends(request(3), part(3, 90_000, 5), request(5), part(5, 300_000, 5))
    client.reads()
    assert client.answer(rest(3, 90_000, 5)) == ["WINDOW_UPDATE 5 300005"]


def test_relief_ends_the_largest_reservation() -> None:
    """A client that reserves memory and sends nothing blocks others no longer than the server permits."""
    budget = Budget(1_000_000, MIB)
    idle, waits = Client(budget=budget), Client(budget=budget)
    idle.sends(request(3), part(3, 300_000, 5), request(5), part(5, 600_000, 5))
    idle.reads()
    waits.sends(request(3), part(3, 200_000, 5))
    budget.relieve()
    assert budget.stirred == {idle.connection, waits.connection}
    assert idle.sends(b"") == ["ended 5 memory"]
    assert idle.reads()[0].startswith("HEADERS 5 :status=200 content-type=application/grpc grpc-status=8")
    assert waits.reads() == ["WINDOW_UPDATE 3 200005"]


def test_half_messages_are_bounded() -> None:
    """Above the limit the connection with the most of them loses its largest, until an eighth is free."""
    budget = Budget(MIB, MIB, spare_bytes=160_000)
    few, many = Client(budget=budget), Client(budget=budget)
    few.sends(request(3), part(3, 50_000, 100))
    events = []
    for stream, size in ((3, 30_000), (5, 40_000), (7, 20_000), (9, 25_000)):
        events += many.sends(request(stream), part(stream, size, 100))
    assert [event for event in events if "opened" not in event] == ["ended 5 memory"]
    assert many.connection in budget.stirred
    assert few.connection not in budget.stirred
    assert budget.unfinished == 125_000
    assert many.sends(rest(3, 30_000, 100), data(5, b"late")) == ["message 3 30000"]


def test_replies_wait_for_the_windows() -> None:
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: 10})
    client.sends(request(3))
    client.connection.send(3, bytes(15))
    client.connection.end(3)
    assert client.reads() == ["HEADERS 3 :status=200 content-type=application/grpc", "DATA 3 10"]
    assert client.budget.unread == 10
    assert client.answer(h2.window_update(3, 4)) == ["DATA 3 4"]
    assert client.answer(h2.settings({h2.INITIAL_WINDOW_SIZE: 11})) == ["SETTINGS ACK", "DATA 3 1"]
    assert client.answer(h2.settings({h2.INITIAL_WINDOW_SIZE: 0}), h2.window_update(3, 11)) == [
        "SETTINGS ACK"
    ]
    assert client.answer(h2.window_update(3, 1)) == ["DATA 3 1"]
    assert client.answer(message(3, 9)) == [], "messages behind the server's end are dropped"
    assert client.answer(h2.window_update(3, 100)) == [
        "DATA 3 4",
        "HEADERS 3 grpc-status=0 END",
        "RST_STREAM 3 NO_ERROR",
    ]
    assert client.budget.unread == 0


def test_a_client_may_half_close_before_the_trailers() -> None:
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: 0})
    client.sends(request(3))
    client.connection.send(3, b"reply")
    client.connection.end(3)
    assert client.sends(data(3, b"", end=True)) == []
    assert client.answer(h2.window_update(3, 10))[1:] == ["DATA 3 10", "HEADERS 3 grpc-status=0 END"]


def test_replies_wait_for_the_connections_window() -> None:
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: 2**31 - 1})
    client.sends(request(3))
    client.connection.send(3, bytes(STREAM_WINDOW), b"next")
    frames = client.reads()
    assert sum(int(words.split()[2]) for words in frames[1:]) == STREAM_WINDOW
    assert client.answer(h2.window_update(0, 100)) == ["DATA 3 14"]


def test_streams_take_turns() -> None:
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: MIB})
    client.sends(request(3), request(5))
    client.connection.send(3, bytes(STREAM_WINDOW))
    client.connection.send(5, bytes(40_000))
    client.reads()
    frames = client.answer(h2.window_update(0, 40_000))
    assert [words.split()[1] for words in frames] == ["3", "5", "3"]


def test_frames_fit_the_clients_limit() -> None:
    client = Client(settings={h2.MAX_FRAME_SIZE: 20_000})
    client.sends(request(3))
    client.connection.send(3, bytes(19_995), bytes(19_996))
    assert client.reads()[1:] == ["DATA 3 20000", "DATA 3 20000", "DATA 3 1"]


def test_a_change_of_windows_may_not_overflow() -> None:
    client = Client()
    client.sends(request(3), h2.window_update(3, 2**31 - 1 - STREAM_WINDOW))
    assert client.sends(h2.settings({h2.INITIAL_WINDOW_SIZE: STREAM_WINDOW})) == []
    assert client.sends(h2.reset(3, h2.CANCEL), request(5))[1:] == ["opened 5"]
    assert client.sends(h2.settings({h2.INITIAL_WINDOW_SIZE: 2**31 - 1})) == [], "the wide stream is gone"
    assert client.sends(h2.window_update(5, 1)) == ["ended 5 protocol"]
    assert client.sends(h2.settings({h2.INITIAL_WINDOW_SIZE: 1}), request(7), h2.window_update(7, 2**31 - 2))
    assert client.sends(h2.settings({h2.INITIAL_WINDOW_SIZE: 2})) == ["ended 7 protocol"]
    assert client.reads()[-1] == "GOAWAY 7 FLOW_CONTROL_ERROR"


def test_output_that_nobody_takes_stays_with_its_streams() -> None:
    """There it counts in the budget, and one write has a limit."""
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: 2**30}, window=2**30)
    client.sends(*(request(stream) for stream in range(3, 203, 2)))
    for stream in range(3, 203, 2):
        client.connection.send(stream, bytes(10_000))
    assert client.budget.unread >= 100 * 10_000 - OUTPUT_BYTES
    assert len(client.connection.take()) < OUTPUT_BYTES + 20_000
    client.reads()
    assert client.budget.unread == 0


def test_unread_replies_are_bounded() -> None:
    """Above the limit the connection with the most unread bytes loses its largest streams."""
    budget = Budget(MIB, 200_000)
    reads, stops = (Client(budget=budget, settings={h2.INITIAL_WINDOW_SIZE: 0}) for _ in range(2))
    reads.sends(request(3))
    reads.connection.send(3, bytes(60_000))
    stops.sends(request(3), request(5), request(7))
    stops.connection.send(3, bytes(40_000))
    stops.connection.send(5, bytes(50_000), bytes(40_000))
    stops.connection.end(5)
    stops.connection.send(7, bytes(15_000), bytes(15_000), b"dropped")
    assert stops.connection in budget.stirred
    assert stops.sends(b"") == [], "the server has ended it before"
    assert "grpc-status=8" in stops.reads()[-2]
    assert budget.unread == 60_005 + 40_005 + 30_010 + 12
    stops.connection.send(7, bytes(70_000), b"more")
    assert stops.sends(b"") == ["ended 7 memory"]
    assert reads.answer(h2.window_update(3, 70_000))[-1] == "DATA 3 10853"


def test_a_client_that_resets_frees_its_memory() -> None:
    client = Client(settings={h2.INITIAL_WINDOW_SIZE: 0})
    client.sends(request(3), part(3, 100_000, 10))
    client.connection.send(3, bytes(1000))
    client.connection.end(3)
    assert client.sends(h2.reset(3, h2.CANCEL)) == [], "the server has ended it before"
    assert (client.budget.unread, client.budget.reserved, client.connection.streams) == (0, 0, 0)
    assert client.answer(h2.settings({h2.INITIAL_WINDOW_SIZE: 10_000})) == [
        "WINDOW_UPDATE 3 100005",
        "HEADERS 3 :status=200 content-type=application/grpc",
        "SETTINGS ACK",
    ]
