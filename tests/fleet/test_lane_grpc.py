"""gRPC over a connection: requests' headers, prefixes, deadlines, statuses."""

from __future__ import annotations

from itertools import count

import pytest
from hpack import Decoder, Encoder

from fleet.lane import frames as h2
from fleet.lane.budget import Budget
from fleet.lane.connection import Connection, Opened
from fleet.lane.headers import literal
from fleet.lane.limits import CACHED_BLOCKS, FRAME_BYTES, HEADER_LIST_BYTES, Limits
from tests.fleet.lane_client import PATH, REQUEST, Client, block, data, message, prefixed, request

GRPC = ":status=200 content-type=application/grpc"
STOP = "RST_STREAM 3 NO_ERROR"


def changed(*fields: tuple[str, str | None]) -> bytes:
    """A call's HEADERS frame with other fields; None leaves one out."""
    values = dict(REQUEST) | dict(fields)
    kept = [(name, value) for name, value in values.items() if value is not None]
    return h2.frame(h2.HEADERS, h2.END_HEADERS, 3, block(*kept))


def opened(sent: bytes) -> Opened:
    (event,) = Client().connection.receive(sent)
    assert isinstance(event, Opened)
    return event


def test_a_call_has_its_path_and_headers() -> None:
    event = opened(request(3, ("x-key", "a"), ("x-key", "b"), ("x-bytes-bin", "AQI")))
    assert event.path == PATH
    assert event.timeout_seconds is None
    assert event.headers[2:] == ((b"x-key", b"a"), (b"x-key", b"b"), (b"x-bytes-bin", b"AQI"))


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1H", 3600),
        ("2M", 120),
        ("3S", 3),
        ("250m", 0.25),
        ("5u", 5e-6),
        ("99999999n", 0.099999999),
        ("0S", 0),
    ],
)
def test_a_deadline_has_a_unit(value: str, seconds: float) -> None:
    assert opened(changed(("grpc-timeout", value))).timeout_seconds == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "1", "S", "123456789S", "-1S", "1.5S", "1s", " 1S"])
def test_a_malformed_deadline_ends_the_call(value: str) -> None:
    client = Client()
    sent = h2.frame(h2.HEADERS, h2.END_HEADERS, 3, block(*REQUEST, ("grpc-timeout", value)))
    events = client.sends(sent)
    assert events == []
    assert client.reads()[0] in (
        f"HEADERS 3 {GRPC} grpc-status=13 grpc-message=malformed grpc-timeout END",
        "RST_STREAM 3 PROTOCOL_ERROR",  # Space around a value.
    )


@pytest.mark.parametrize(
    "kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"]
)
def test_types_of_grpc(kind: str) -> None:
    assert opened(changed(("content-type", kind))).path == PATH


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([("content-type", "application/json")], 415),
        ([("content-type", "application/grpc-web")], 415),
        ([("content-type", None)], 415),
        ([(":method", "GET")], 405),
        ([("x", "y" * (HEADER_LIST_BYTES - 200))], 431),
    ],
)
def test_requests_that_are_no_calls(fields: list[tuple[str, str | None]], status: int) -> None:
    client = Client()
    assert client.sends(changed(*fields)) == []
    assert client.reads() == [f"HEADERS 3 :status={status} END", STOP]
    assert client.connection.streams == 0


MALFORMED: dict[str, list[tuple[str, str]]] = {
    "no path": [*REQUEST[:2], *REQUEST[3:]],
    "a colon in a name": [*REQUEST, ("a:b", "a")],
    "space behind a value": [*REQUEST, ("a", "b ")],
    "two hosts": [*REQUEST, ("host", "elsewhere")],
    "a length that is no number": [*REQUEST, ("content-length", "+1")],
}
"""Next to those of test_lane_h2spec.py."""


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_end_their_stream(case: str) -> None:
    """Also when the same block comes again."""
    client = Client()
    for stream in (3, 5):
        sent = h2.frame(h2.HEADERS, h2.END_HEADERS, stream, block(*MALFORMED[case]))
        assert client.sends(sent) == []
        assert client.reads() == [f"RST_STREAM {stream} PROTOCOL_ERROR"]


@pytest.mark.parametrize(
    ("length", "size", "fails"),
    [("9", 4, False), ("8", 4, True), ("10", 4, True), ("0", 4, True), ("5", 0, False)],
)
def test_content_length_is_that_of_the_data(length: str, size: int, fails: bool) -> None:
    client = Client()
    events = client.sends(request(3, ("content-length", length)), message(3, size, end=True))
    assert ("ended 3 protocol" in events) == fails
    assert (events[-1] == "half-closed 3") != fails
    assert client.reads() == (["RST_STREAM 3 PROTOCOL_ERROR"] if fails else [])


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        (
            b"\1\0\0\0\1x",
            "grpc-status=12 grpc-message=compressed messages are not supported grpc-accept-encoding=identity",
        ),
        (b"\2\0\0\0\1x", "grpc-status=13 grpc-message=the prefix of a message is malformed"),
        (b"\0\0\0\3\xe9x", "grpc-status=8 grpc-message=a message of 1001 bytes; allowed: 1000"),
    ],
)
@pytest.mark.parametrize("cut", [2, 6])
def test_prefixes_that_end_the_call(payload: bytes, answer: str, cut: int) -> None:
    client = Client(Limits(message_bytes=1000))
    assert client.sends(request(3) + data(3, payload[:cut]) + data(3, payload[cut:])) == [
        "opened 3",
        "ended 3 protocol",
    ]
    assert client.reads() == [f"HEADERS 3 {GRPC} {answer} END", STOP]


def test_the_longest_message_passes() -> None:
    client = Client(Limits(message_bytes=1000))
    assert (
        client.sends(request(3), message(3, 1000), message(3, 1000, frame_bytes=600))[1:]
        == ["message 3 1000"] * 2
    )


@pytest.mark.parametrize("part", [b"\0\0", prefixed(b"abc")[:-1]])
def test_a_half_message_ends_the_call(part: bytes) -> None:
    client = Client()
    assert client.sends(request(3), data(3, part), data(3, b"", end=True))[1:] == ["ended 3 protocol"]
    (trailers,) = client.reads()
    assert trailers.startswith(f"HEADERS 3 {GRPC} grpc-status=13 ")
    assert client.budget.unfinished == 0


def test_trailers_of_the_client_half_close() -> None:
    client = Client()
    trailers = h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 3, block(("a", "b")))
    assert client.sends(request(3), trailers) == ["opened 3", "half-closed 3"]


def test_long_texts_fit_into_a_frame() -> None:
    client = Client()
    client.sends(request(3, end=True))
    client.connection.end(3, 13, "ü" * 10_000)
    (trailers,) = client.reads()
    assert len(trailers) < 16_384
    assert "%C3%BC" in trailers


def test_literals_of_any_length() -> None:
    for size in (0, 1, 126, 127, 128, 254, 255, 1000, 20_000):
        assert Decoder().decode(literal(b"a", b"v" * size)) == [("a", "v" * size)]


def test_fields_of_any_form_are_read() -> None:
    """Indexes of two bytes, long values, names without an index, and each block twice."""
    forms = (
        *(("authorization", "secret", True), ("user-agent", "envoy", True), ("x-new", "a", False)),
        *(("via", "v" * 126, True), ("warning", "w" * 300, True), ("etag", "", False)),
    )
    encoder, client = Encoder(), Client()
    encoder.header_table_size = 0
    encoder.encode(())
    for stream, form in zip(count(3, 2), forms * 2, strict=False):
        sent = encoder.encode((*REQUEST, form), huffman=False)
        (event,) = client.connection.receive(h2.frame(h2.HEADERS, h2.END_HEADERS, stream, sent))
        assert isinstance(event, Opened)
        assert event.headers[-1] == (form[0].encode(), form[1].encode())


def test_requests_that_differ_stay_apart() -> None:
    """More of them than the connection remembers, and each twice."""
    client = Client()
    stream = 3
    for _ in range(2):
        for number in range(CACHED_BLOCKS + 10):
            (event,) = client.connection.receive(
                request(stream, ("x-number", str(number)), ("x-same", "same"))
            )
            assert isinstance(event, Opened)
            assert event.headers[2:] == ((b"x-number", b"%d" % number), (b"x-same", b"same"))
            stream += 2


def test_a_table_lasts_until_the_client_empties_it() -> None:
    """Blocks before the acknowledgement refer to earlier ones; none does behind it."""
    encoder, connection = Encoder(), Connection(Limits(), Budget(1, 1))

    def call(stream: int, value: str) -> bytes:
        return h2.frame(h2.HEADERS, h2.END_HEADERS, stream, encoder.encode((*REQUEST, ("x-key", value))))

    connection.receive(h2.PREFACE + h2.settings({}))
    values = []
    for stream, value in ((1, "a"), (3, "b"), (5, "a"), (7, "c")):
        if stream == 5:
            connection.receive(h2.frame(h2.SETTINGS, h2.ACK, 0))
            encoder.header_table_size = 0
        (event,) = connection.receive(call(stream, value))
        assert isinstance(event, Opened)
        values.append(event.headers[-1][1])
    assert values == [b"a", b"b", b"a", b"c"]


@pytest.mark.parametrize("before", [False, True])
def test_a_table_must_be_empty_behind_the_acknowledgement(before: bool) -> None:
    connection = Connection(Limits(), Budget(1, 1))
    connection.receive(h2.PREFACE + h2.settings({}))
    call = h2.frame(h2.HEADERS, h2.END_HEADERS, 1 if before else 3, block(*REQUEST))
    if before:
        connection.receive(call)
    connection.receive(h2.frame(h2.SETTINGS, h2.ACK, 0))
    connection.receive(h2.frame(h2.HEADERS, h2.END_HEADERS, 3, block(*REQUEST)))
    assert connection.closing
    assert connection.take()[-4:] == h2.COMPRESSION_ERROR.to_bytes(4)


@pytest.mark.parametrize("cut", [FRAME_BYTES, 16_384])
@pytest.mark.parametrize("value", ["y" * 100_000, "~" * 16_300])
def test_a_large_header_list_costs_one_stream(value: str, cut: int) -> None:
    """In one frame or several, and whatever the form of its bytes."""
    client, fields = Client(), block(*REQUEST, ("x", value))
    first, *more = [fields[at : at + cut] for at in range(0, len(fields), cut)]
    sent = h2.frame(h2.HEADERS, 0 if more else h2.END_HEADERS, 3, first)
    for number, part in enumerate(more, 1):
        sent += h2.frame(h2.CONTINUATION, h2.END_HEADERS if number == len(more) else 0, 3, part)
    sent += request(5)
    assert client.sends(*(sent[at : at + 9_000] for at in range(0, len(sent), 9_000))) == ["opened 5"]
    assert client.reads() == ["HEADERS 3 :status=431 END", "RST_STREAM 3 NO_ERROR"]
