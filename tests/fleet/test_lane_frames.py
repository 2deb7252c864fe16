"""A connection's calls and their ends. test_lane_h2spec.py has the rules of the RFCs for frames."""

from __future__ import annotations

import pytest
from hpack import Decoder

from fleet.lane import frames as h2
from fleet.lane.budget import Budget
from fleet.lane.connection import Connection
from fleet.lane.limits import FRAME_BYTES, RECENT_STREAMS, Limits
from tests.fleet.lane_client import Client, block, data, message, prefixed, request

HELLO = h2.PREFACE + h2.settings({})
ANSWERED = "HEADERS {} :status=200 content-type=application/grpc"
OK = "HEADERS {} grpc-status=0 END"


def headers(stream: int, payload: bytes, flags: int = h2.END_HEADERS) -> bytes:
    return h2.frame(h2.HEADERS, flags, stream, payload)


def test_a_call_has_messages_both_ways_and_trailers() -> None:
    client = Client()
    assert client.sends(request(3) + message(3, 10)) == ["opened 3", "message 3 10"]
    client.connection.send(3, b"one", b"two")
    assert client.reads() == [ANSWERED.format(3), "DATA 3 8", "DATA 3 8"]
    assert client.sends(data(3, b"", end=True)) == ["half-closed 3"]
    client.connection.end(3)
    assert client.reads() == [OK.format(3)]
    assert client.connection.streams == 0


def test_trailers_of_an_open_stream_stop_the_client() -> None:
    client = Client()
    client.sends(request(3))
    client.connection.send(3, b"reply")
    client.connection.end(3, 5, "no such 'thing', 100 % sure\n")
    trailers = "HEADERS 3 grpc-status=5 grpc-message=no such 'thing', 100 %25 sure%0A END"
    assert client.reads() == [ANSWERED.format(3), "DATA 3 10", trailers, "RST_STREAM 3 NO_ERROR"]
    assert client.answer(message(3, 10), data(3, b"", end=True)) == [], "late frames are ignored"


def test_the_last_frame_may_be_a_message() -> None:
    client = Client()
    assert client.sends(request(3), message(3, 7, end=True))[1:] == ["message 3 7", "half-closed 3"]


def test_an_end_without_messages_is_one_frame() -> None:
    client = Client()
    client.sends(request(3, end=True))
    client.connection.end(3, 12)
    assert client.reads() == ["HEADERS 3 :status=200 content-type=application/grpc grpc-status=12 END"]


def test_nothing_can_be_sent_on_an_ended_stream() -> None:
    client = Client()
    client.sends(request(3), request(5), h2.reset(5, h2.CANCEL))
    client.connection.end(3)
    client.reads()
    for stream in (3, 5, 7):
        client.connection.send(stream, b"late")
        client.connection.end(stream)
        client.connection.reset(stream, h2.CANCEL)
    assert client.reads() == []


def test_the_first_flight_announces_the_limits() -> None:
    connection = Connection(Limits(streams=7), Budget(1, 1))
    first = connection.take()
    settings = dict(h2.SETTING.iter_unpack(first[9 : -len(h2.window_update(0, 1))]))
    assert settings[h2.HEADER_TABLE_SIZE] == 0
    assert settings[h2.MAX_CONCURRENT_STREAMS] == 7
    assert settings[h2.MAX_FRAME_SIZE] == FRAME_BYTES
    assert first.endswith(h2.window_update(0, 2**31 - 1 - 65_535))


def test_the_first_reply_empties_the_servers_table() -> None:
    """So a client whose table shrinks later waits for no update."""
    connection = Connection(Limits(), Budget(1, 1))
    connection.receive(HELLO + request(1) + request(3))
    connection.take()
    connection.send(1, b"")
    decoder = Decoder()
    decoder.decode(connection.take()[9:-14])
    decoder.max_allowed_table_size = 0
    connection.send(3, b"")
    fields = dict(decoder.decode(connection.take()[9:-14], raw=True))
    assert fields[b":status"] == b"200"


@pytest.mark.parametrize("size", [1, 2, 7, 10, 100, 20_000])
def test_any_chunks_give_the_same_events(size: int) -> None:
    """Frames, prefixes and padding may be cut anywhere."""
    sent = (
        request(3)
        + message(3, 0)
        + data(3, prefixed(b"a" * 40)[:3])
        + data(3, prefixed(b"a" * 40)[3:20], padding=9)
        + h2.frame(h2.PING, 0, 0, b"12345678")
        + data(3, prefixed(b"a" * 40)[20:] + prefixed(b"b" * 300) + prefixed(b"c" * 70)[:4], padding=0)
        + data(3, prefixed(b"c" * 70)[4:], padding=255, end=True)
        + h2.frame(0xBE, 0xFF, 5, bytes(70_000))
        + request(5, end=True)
    )
    client = Client()
    events = client.sends(*(sent[at : at + size] for at in range(0, len(sent), size)))
    messages = ["message 3 0", "message 3 40", "message 3 300", "message 3 70"]
    assert events == ["opened 3", *messages, "half-closed 3", "opened 5", "half-closed 5"]
    assert client.reads() == ["PING 12345678 ACK"]


def test_streams_above_the_limit_are_refused() -> None:
    client = Client(Limits(streams=2))
    assert client.sends(request(3), request(5), request(7)) == ["opened 3", "opened 5"]
    assert client.reads() == ["RST_STREAM 7 REFUSED_STREAM"]
    client.connection.end(3)
    assert client.sends(data(7, b"late"), request(9)) == ["opened 9"]


def test_the_server_may_end_a_stream_within_a_frame() -> None:
    client = Client()
    frame = data(3, prefixed(bytes(50_000)), end=True)
    client.sends(request(3), frame[:30_000])
    client.connection.end(3)
    client.reads()
    assert client.sends(frame[30_000:] + request(5)) == ["opened 5"]
    assert client.budget.unfinished == 0


def test_late_frames_are_ignored_for_the_newest_streams() -> None:
    """What the server remembers is bounded; resets of older streams do no harm."""
    client = Client()
    streams = range(3, 3 + 2 * (RECENT_STREAMS + 1), 2)
    for stream in streams:
        client.sends(request(stream))
        client.connection.end(stream)
    client.reads()
    assert client.answer(data(streams[1], b"late"), data(streams[-1], b"late")) == []
    assert client.answer(data(streams[0], b"late")) == [f"RST_STREAM {streams[0]} STREAM_CLOSED"]


def test_a_reset_by_the_server() -> None:
    client = Client()
    client.sends(request(3) + data(3, prefixed(b"begun")[:7]))
    client.connection.reset(3, h2.INTERNAL_ERROR)
    assert client.reads() == ["RST_STREAM 3 INTERNAL_ERROR"]
    late = headers(3, block(("a", "b")), h2.END_HEADERS | h2.END_STREAM)
    assert client.answer(data(3, b"late"), late, h2.reset(3, h2.CANCEL)) == []
    assert not client.connection.closing


def test_a_drain_serves_streams_on_their_way() -> None:
    client = Client()
    client.sends(request(3))
    client.connection.go_away()
    assert client.reads() == [f"GOAWAY {2**31 - 1} NO_ERROR", "PING draining"]
    assert client.sends(request(5)) == ["opened 5"]
    assert client.answer(h2.frame(h2.PING, h2.ACK, 0, b"draining")) == ["GOAWAY 5 NO_ERROR"]
    assert client.sends(request(7), data(7, b"x"), h2.reset(7, 0), message(5, 2)) == ["message 5 2"]
    client.connection.end(3)
    assert not client.connection.closing
    client.connection.end(5)
    assert client.connection.closing


def test_a_second_call_ends_the_wait_of_a_drain() -> None:
    client = Client()
    for _ in range(3):
        client.connection.go_away()
    assert client.reads()[2:] == ["GOAWAY 1 NO_ERROR"]
    assert client.connection.closing


def test_a_lost_connection_ends_its_streams() -> None:
    client = Client()
    client.sends(request(3), request(5) + data(5, prefixed(bytes(9))[:8]))
    assert client.budget.unfinished == 8
    assert [event.reason for event in client.connection.lost()] == ["lost", "lost"]  # type: ignore[union-attr]
    assert client.budget.unfinished == 0
    assert client.connection.lost() == []
