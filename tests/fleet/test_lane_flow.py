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


def test_a_prompt_of_256_kib_needs_one_window_update() -> None:
    """Once half of the first window is used; it leaves a whole window for the next message."""
    client = Client()
    size = 8 * 32_768 - 5
    assert client.answer(request(3), part(3, size, 32_767)) == []
    assert client.answer(data(3, b"m")) == [f"WINDOW_UPDATE 3 {size + 5}"]
    assert client.budget.permitted == size + 5
    assert client.sends(rest(3, size, 32_768)) == [f"message 3 {size}"]
    assert client.reads() == []
    assert client.budget.permitted == 0
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
    assert (client.budget.unfinished, client.budget.permitted) == (0, 0)


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
    client.sends(request(3), part(3, 900_000, 40_000), rest(3, 900_000, 40_000)[:120_000])
    frame = rest(3, 900_000, 40_000)[120_000:]
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
    assert client.answer(part(3, 100_000, 20_000)) == [], "a larger message waits for the end of the pause"
    client.connection.resume(3)
    assert client.reads() == ["WINDOW_UPDATE 3 140010"]
    assert client.sends(rest(3, 100_000, 20_000)) == ["message 3 100000"]
    assert client.budget.permitted == 0


def test_the_connections_window_is_renewed_in_batches() -> None:
    client = Client()
    size = 4 * MIB
    updates = []
    for stream in range(3, 3 + 2 * (WINDOW_BATCH // size + 1), 2):
        updates += client.answer(request(stream), message(stream, size), h2.reset(stream, 0))
    (total,) = [int(words.split()[1]) for words in updates if words.count(" ") == 1]
    assert total >= WINDOW_BATCH


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
    client.sends(request(3), part(3, 100_000, 40_000))
    client.connection.send(3, bytes(1000))
    client.connection.end(3)
    assert client.sends(h2.reset(3, h2.CANCEL)) == [], "the server has ended it before"
    assert (client.budget.unread, client.budget.permitted, client.connection.streams) == (0, 0, 0)
    assert client.answer(h2.settings({h2.INITIAL_WINDOW_SIZE: 10_000})) == [
        "WINDOW_UPDATE 3 100005",
        "HEADERS 3 :status=200 content-type=application/grpc",
        "SETTINGS ACK",
    ]
