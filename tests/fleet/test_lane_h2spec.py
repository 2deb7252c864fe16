"""What RFC 9113, RFC 7541 and gRPC demand of a server, one case a sentence, by sections.

The choice of cases is that of h2spec (summerwind/h2spec), which tests RFC 7540. Where RFC 9113 changed a
rule, the case follows RFC 9113 and says so. Each case runs twice: by frames, and byte by byte. After
each one that may not cost the connection, an honest call on it is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import hpack
import pytest

from fleet.lane.connection import Ended
from fleet.lane.limits import FRAME_BYTES, Limits
from testing import lane_client as wire
from testing.lane_client import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITISED,
    PRIORITY,
    PUSH_PROMISE,
    REQUEST,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Client,
    block,
    data,
    frame,
    grpc_message,
    headers,
    literal,
    ping,
    reset,
    settings,
    window_update,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_HONEST = 99_999
"""The stream of the honest call, above every other one."""
_STREAMS = 50
"""That a connection may have open."""
_HELLO = grpc_message(b"hello")


class ConnectionFault(NamedTuple):
    """GOAWAY with one of the codes, and the connection's end."""

    codes: tuple[int, ...]

    def check(self, client: Client) -> None:
        assert client.replies[-1].kind == GOAWAY
        assert [one.code in self.codes for one in client.of(GOAWAY)] == [True]
        assert client.connection.closing
        before = len(client.events)
        client.send(*call(_HONEST))
        client.lose()
        assert client.replies[-1].kind == GOAWAY
        assert all(isinstance(event, Ended) for event in client.events[before:])
        assert client.connection.error
        assert client.budget.owners == set()


class StreamFault(NamedTuple):
    """RST_STREAM with the code on stream 1, and nothing that costs others."""

    code: int

    def check(self, client: Client) -> None:
        assert [(one.stream, one.code) for one in client.of(RST_STREAM)] == [(1, self.code)]
        assert client.messages(1) == []
        assert client.ended() == client.opened()
        honest(client)


class Answered(NamedTuple):
    """The call on stream 1 is answered with these messages, and ends with OK."""

    messages: tuple[bytes, ...] = ()

    def check(self, client: Client) -> None:
        assert client.of(RST_STREAM) == []
        assert client.messages(1) == list(self.messages)
        content = b"".join(one.payload for one in client.of(DATA, 1))
        assert content == b"".join(map(grpc_message, self.messages))
        assert client.status(1) == "0"
        honest(client)


class Ignored(NamedTuple):
    """No reply but acknowledgements."""

    def check(self, client: Client) -> None:
        assert all(one.kind in {SETTINGS, PING} and one.flags & ACK for one in client.replies)
        honest(client)


class Got(NamedTuple):
    """A condition of its own."""

    condition: Callable[[Client], object]

    def check(self, client: Client) -> None:
        assert self.condition(client)
        honest(client)


PROTOCOL = ConnectionFault((wire.PROTOCOL_ERROR,))
FRAME_SIZE = ConnectionFault((wire.FRAME_SIZE_ERROR,))
FLOW_CONTROL = ConnectionFault((wire.FLOW_CONTROL_ERROR,))
COMPRESSION = ConnectionFault((wire.COMPRESSION_ERROR,))
CLOSED = ConnectionFault((wire.STREAM_CLOSED, wire.PROTOCOL_ERROR))
"""Sections 5.1 and 5.1.1 demand either for the same frame."""
SHORT = ConnectionFault((wire.FRAME_SIZE_ERROR, wire.PROTOCOL_ERROR))
"""Sections 4.2 and 6.1 demand either for the same frame."""
HELLO = Answered((b"hello",))
LATE = Got(
    lambda client: [(one.stream, one.code) for one in client.of(RST_STREAM)] == [(1, wire.STREAM_CLOSED)]
)
IGNORED = Ignored()


def honest(client: Client) -> None:
    """Check that a call, and a ping, on the same connection are answered."""
    client.answers = True
    client.send(*call(_HONEST), ping(b"12345678"))
    assert client.replies[-1] == (PING, ACK, 0, b"12345678")
    assert client.of(GOAWAY) == []
    assert client.messages(_HONEST) == [b"hello"]


class Case(NamedTuple):
    """Frames of a client after the handshake, and what must follow."""

    outcome: ConnectionFault | StreamFault | Answered | Ignored | Got
    sends: list[bytes]
    first: tuple[tuple[int, int], ...] = ()
    """The client's first settings."""
    answers: bool = True


def call(stream: int, content: bytes = _HELLO) -> list[bytes]:
    """Return a whole call."""
    return [headers(stream), data(stream, content, end=True)]


def without(name: str) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in REQUEST if pair[0] != name)


def priority(stream: int, depends_on: int = 0, *, size: int = 5) -> bytes:
    return frame(PRIORITY, 0, stream, (depends_on.to_bytes(4, "big") + b"\xff")[:size])


def continuation(stream: int, part: bytes, *, last: bool = True) -> bytes:
    return frame(CONTINUATION, END_HEADERS * last, stream, part)


def in_parts(stream: int, *between: bytes, parts: int = 3, end: bool = True) -> list[bytes]:
    """Return a call's headers in a HEADERS frame and CONTINUATIONs, with `between` after the first frame."""
    whole = block()
    cuts = [whole[len(whole) * i // parts : len(whole) * (i + 1) // parts] for i in range(parts)]
    first = frame(HEADERS, END_STREAM * end, stream, cuts[0])
    rest = [continuation(stream, cut, last=cut is cuts[-1]) for cut in cuts[1:]]
    return [first, *between, *rest]


def trailers(stream: int, *fields: tuple[str, str], end: bool = True) -> bytes:
    return headers(stream, fields or (("x-trailer", "yes"),), end=end)


def payload_sizes(client: Client, stream: int = 1) -> list[int]:
    return [len(one.payload) for one in client.of(DATA, stream)]


_FRAMES = {
    "4.1 unknown frame type": Case(IGNORED, [frame(0x16, 0, 0, b"12345678")]),
    "4.1 undefined flags": Case(IGNORED, [frame(PING, 0x16, 0, b"12345678")]),
    "4.1 reserved bit of the stream id": Case(IGNORED, [frame(PING, 0, 1 << 31, b"12345678")]),
    "4.1 reserved bit on a request": Case(
        Answered(), [frame(HEADERS, END_HEADERS | END_STREAM, 1 << 31 | 1, block())]
    ),
    "4.2 DATA of 16,384 bytes": Case(
        Answered((bytes(16_379),)), [headers(1), data(1, grpc_message(bytes(16_379)), end=True)]
    ),
    "4.2 DATA longer than SETTINGS_MAX_FRAME_SIZE": Case(
        FRAME_SIZE, [headers(1), frame(DATA, 0, 1, b"12345", length=FRAME_BYTES + 1)]
    ),
    "4.2 HEADERS longer than SETTINGS_MAX_FRAME_SIZE": Case(
        FRAME_SIZE, [frame(HEADERS, END_HEADERS, 1, b"\x88", length=FRAME_BYTES + 1)]
    ),
    "4.2 unknown type longer than SETTINGS_MAX_FRAME_SIZE": Case(
        FRAME_SIZE, [frame(0x16, 0, 0, b"", length=FRAME_BYTES + 1)]
    ),
    "4.3 header block that cannot be decoded": Case(
        COMPRESSION, [frame(HEADERS, END_HEADERS | END_STREAM, 1, block() + b"\x40")]
    ),
    "4.3 trailers that cannot be decoded": Case(
        COMPRESSION, [headers(1), frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\xff" * 6)]
    ),
    "4.3 PRIORITY within a header block": Case(PROTOCOL, in_parts(1, priority(1))),
    "4.3 HEADERS of another stream within a header block": Case(PROTOCOL, in_parts(1, headers(3))),
    "5.5 unknown type within a header block": Case(PROTOCOL, in_parts(1, frame(0x16, 0, 1))),
    "5.5 unknown setting": Case(IGNORED, [settings((0xFF, 1))]),
}

_STATES = {
    "5.1 idle: DATA": Case(PROTOCOL, [data(1, b"test")]),
    "5.1 idle: RST_STREAM": Case(PROTOCOL, [reset(1)]),
    "5.1 idle: WINDOW_UPDATE": Case(PROTOCOL, [window_update(1, 9)]),
    "5.1 idle: CONTINUATION": Case(PROTOCOL, [continuation(1, block())]),
    "5.1 idle: PRIORITY": Case(IGNORED, [priority(1)]),
    "5.1 half-closed (remote): DATA": Case(
        StreamFault(wire.STREAM_CLOSED), [headers(1, end=True), data(1, _HELLO)], answers=False
    ),
    "5.1 half-closed (remote): HEADERS": Case(
        StreamFault(wire.STREAM_CLOSED), [headers(1, end=True), headers(1, end=True)], answers=False
    ),
    "5.1 half-closed (remote): CONTINUATION": Case(
        PROTOCOL, [headers(1, end=True), continuation(1, block())], answers=False
    ),
    "5.1 half-closed (remote): WINDOW_UPDATE": Case(
        HELLO, [*call(1), window_update(1, 5), window_update(1, 95)], first=((wire.INITIAL_WINDOW_SIZE, 0),)
    ),
    "5.1 half-closed (remote): PRIORITY": Case(
        HELLO, [*call(1), priority(1), window_update(1, 99)], first=((wire.INITIAL_WINDOW_SIZE, 0),)
    ),
    "5.1 half-closed (remote): RST_STREAM": Case(
        Got(lambda c: c.ended() == [1] and c.of(RST_STREAM) == []),
        [headers(1, end=True), reset(1)],
        answers=False,
    ),
    "5.1 closed by RST_STREAM: DATA": Case(
        Got(lambda c: c.ended() == [1] and [one.code for one in c.of(RST_STREAM, 1)] == [wire.STREAM_CLOSED]),
        [headers(1), reset(1), data(1, _HELLO)],
    ),
    "5.1 closed by RST_STREAM: HEADERS": Case(CLOSED, [headers(1), reset(1), headers(1, end=True)]),
    "5.1 closed by RST_STREAM: CONTINUATION": Case(
        PROTOCOL, [headers(1), reset(1), continuation(1, block())]
    ),
    "5.1 closed: PRIORITY": Case(HELLO, [*call(1), priority(1)]),
    "5.1 closed: WINDOW_UPDATE": Case(HELLO, [*call(1), window_update(1, 9)]),
    "5.1 closed: RST_STREAM": Case(HELLO, [*call(1), reset(1)]),
    # RFC 9113 permits an error of the connection too; section 6.1 demands this one.
    "5.1 closed: DATA": Case(LATE, [*call(1), data(1, _HELLO)]),
    "5.1 closed: HEADERS": Case(CLOSED, [*call(1), headers(1, end=True)]),
    "5.1 closed: CONTINUATION": Case(PROTOCOL, [*call(1), continuation(1, block())]),
    "5.1.1 even stream id": Case(PROTOCOL, call(2)),
    "5.1.1 DATA on an even stream id": Case(PROTOCOL, [headers(1), data(2, b"x")]),
    "5.1.1 stream id below the last one": Case(CLOSED, [*call(5), *call(3)]),
    "5.1.1 DATA on a stream id that a later one has closed": Case(LATE, [*call(5), data(1, _HELLO)]),
    "5.1.2 more streams than SETTINGS_MAX_CONCURRENT_STREAMS": Case(
        Got(
            lambda c: (
                [(one.stream, one.code) for one in c.of(RST_STREAM)]
                == [(2 * _STREAMS + 1, wire.REFUSED_STREAM)]
            )
        ),
        [headers(2 * i + 1) for i in range(_STREAMS + 1)] + [reset(1)],
        answers=False,
    ),
    # RFC 9113, section 5.3: priority is deprecated, so that a stream may depend on itself.
    "5.3.1 HEADERS that depend on their own stream": Case(
        Answered(), [headers(1, flags=END_HEADERS | PRIORITISED, end=True, before=b"\0\0\0\1\xff")]
    ),
    "5.3.1 PRIORITY that depends on its own stream": Case(IGNORED, [priority(1, 1)]),
}

_TYPES = {
    "6.1 DATA": Case(HELLO, call(1)),
    "6.1 several DATA frames": Case(
        Answered((b"hello", b"hello")),
        [headers(1), data(1, _HELLO[:3]), data(1, _HELLO[3:] + _HELLO), data(1, end=True)],
    ),
    "6.1 padded DATA": Case(HELLO, [headers(1), data(1, _HELLO, pad=6), data(1, pad=255, end=True)]),
    "6.1 DATA on stream 0": Case(PROTOCOL, [data(0, b"test")]),
    "6.1 padding as long as the payload": Case(
        PROTOCOL, [headers(1), frame(DATA, PADDED, 1, b"\x05test!"), frame(DATA, PADDED, 1, b"\x06test!")]
    ),
    "6.1 padded DATA without a pad length": Case(SHORT, [headers(1), frame(DATA, PADDED, 1)]),
    "6.2 padded HEADERS": Case(
        HELLO,
        [
            headers(1, flags=END_HEADERS | PADDED, before=b"\x04", after=bytes(4)),
            data(1, _HELLO, end=True),
        ],
    ),
    "6.2 HEADERS with padding and priority": Case(
        Answered(),
        [
            headers(
                1,
                flags=END_HEADERS | PADDED | PRIORITISED,
                end=True,
                before=b"\x03\0\0\0\0\xff",
                after=bytes(3),
            )
        ],
    ),
    "6.2 HEADERS on stream 0": Case(PROTOCOL, [headers(0)]),
    "6.2 padded HEADERS on stream 0": Case(PROTOCOL, [headers(0, flags=END_HEADERS | PADDED, before=b"\0")]),
    "6.2 HEADERS with padding beyond the payload": Case(
        PROTOCOL, [frame(HEADERS, END_HEADERS | PADDED, 1, b"\xff" + block())]
    ),
    "6.2 HEADERS too short for their priority": Case(
        SHORT, [frame(HEADERS, END_HEADERS | PRIORITISED, 1, b"\0\0")]
    ),
    "6.3 PRIORITY on stream 0": Case(PROTOCOL, [priority(0)]),
    # An error of the stream; section 5.4 permits to treat it as one of the connection.
    "6.3 PRIORITY of 4 bytes": Case(FRAME_SIZE, [headers(1), priority(1, size=4)]),
    "6.4 RST_STREAM on stream 0": Case(PROTOCOL, [reset(0)]),
    "6.4 RST_STREAM of 3 bytes": Case(FRAME_SIZE, [headers(1), frame(RST_STREAM, 0, 1, bytes(3))]),
    "6.5 SETTINGS ACK with a payload": Case(FRAME_SIZE, [frame(SETTINGS, ACK, 0, b"\0")]),
    "6.5 SETTINGS on stream 1": Case(PROTOCOL, [frame(SETTINGS, 0, 1, bytes(6))]),
    "6.5 SETTINGS of a megabyte": Case(
        ConnectionFault((wire.ENHANCE_YOUR_CALM,)), [frame(SETTINGS, length=1_000_000)]
    ),
    "6.5 SETTINGS of 3 bytes": Case(FRAME_SIZE, [frame(SETTINGS, 0, 0, bytes(3))]),
    "6.5.2 SETTINGS_ENABLE_PUSH of 2": Case(PROTOCOL, [settings((wire.ENABLE_PUSH, 2))]),
    "6.5.2 SETTINGS_INITIAL_WINDOW_SIZE above 2^31 - 1": Case(
        FLOW_CONTROL, [settings((wire.INITIAL_WINDOW_SIZE, 1 << 31))]
    ),
    "6.5.2 SETTINGS_MAX_FRAME_SIZE below 16,384": Case(PROTOCOL, [settings((wire.MAX_FRAME_SIZE, 16_383))]),
    "6.5.2 SETTINGS_MAX_FRAME_SIZE above 2^24 - 1": Case(
        PROTOCOL, [settings((wire.MAX_FRAME_SIZE, 1 << 24))]
    ),
    "6.5.3 several values of one setting": Case(
        Got(lambda c: payload_sizes(c) == [1]),
        [
            settings((wire.INITIAL_WINDOW_SIZE, 100), (wire.INITIAL_WINDOW_SIZE, 1)),
            *call(1),
        ],
    ),
    "6.5.3 each SETTINGS is acknowledged": Case(
        Got(lambda c: c.of(SETTINGS) == [(SETTINGS, ACK, 0, b"")] * 2),
        [settings((wire.ENABLE_PUSH, 0)), settings()],
    ),
    # RFC 9113, section 8.4: a client cannot push.
    "6.6 PUSH_PROMISE": Case(
        PROTOCOL, [headers(1), frame(PUSH_PROMISE, END_HEADERS, 1, b"\0\0\0\2" + block())]
    ),
    "6.7 PING": Case(Got(lambda c: c.replies == [(PING, ACK, 0, b"h2spec!!")]), [ping(b"h2spec!!")]),
    "6.7 PING ACK that answers nothing": Case(Got(lambda c: c.replies == []), [ping(ack=True)]),
    "6.7 PING on stream 1": Case(PROTOCOL, [frame(PING, 0, 1, bytes(8))]),
    "6.7 PING of 6 bytes": Case(FRAME_SIZE, [frame(PING, 0, 0, bytes(6))]),
    "6.8 GOAWAY on stream 1": Case(PROTOCOL, [frame(GOAWAY, 0, 1, bytes(8))]),
    "6.8 GOAWAY of 7 bytes": Case(FRAME_SIZE, [frame(GOAWAY, 0, 0, bytes(7))]),
    "6.8 GOAWAY with a long text": Case(IGNORED, [frame(GOAWAY, 0, 0, bytes(100_000))]),
    "6.8 a call that is open at the client's GOAWAY": Case(
        Got(lambda c: c.status(1) == "0"),
        [headers(1), frame(GOAWAY, 0, 0, bytes(8)), data(1, _HELLO, end=True)],
    ),
    "6.10 several CONTINUATIONs": Case(Answered(), in_parts(1, parts=5)),
    "6.10 HEADERS with padding and priority in parts": Case(
        Answered(),
        [
            frame(
                HEADERS,
                END_STREAM | PADDED | PRIORITISED,
                1,
                b"\x04" + bytes(5) + block()[:10] + bytes(4),
            ),
            continuation(1, block()[10:20], last=False),
            continuation(1, block()[20:]),
        ],
    ),
    "6.10 HEADERS without END_STREAM in parts": Case(
        HELLO, [*in_parts(1, end=False), data(1, _HELLO, end=True)]
    ),
    "6.10 DATA within a header block": Case(PROTOCOL, in_parts(1, data(1, _HELLO))),
    "6.10 CONTINUATION on stream 0": Case(PROTOCOL, in_parts(1, continuation(0, block()))),
    "6.10 CONTINUATION of another stream": Case(PROTOCOL, in_parts(1, continuation(3, block()))),
    "6.10 CONTINUATION after END_HEADERS": Case(PROTOCOL, [headers(1), continuation(1, block())]),
    "6.10 CONTINUATION after the last one": Case(
        PROTOCOL, [*in_parts(1, end=False), continuation(1, block())]
    ),
    "6.10 CONTINUATION after DATA": Case(PROTOCOL, [headers(1), data(1, _HELLO), continuation(1, block())]),
    "7 GOAWAY with an unknown code": Case(IGNORED, [frame(GOAWAY, 0, 0, bytes(7) + b"\xff")]),
    "7 RST_STREAM with an unknown code": Case(Got(lambda c: c.ended() == [1]), [headers(1), reset(1, 0xFF)]),
}

_WINDOWS = {
    "6.9 WINDOW_UPDATE of 0 on the connection": Case(PROTOCOL, [window_update(0, 0)]),
    "6.9 WINDOW_UPDATE of 0 on a stream": Case(
        StreamFault(wire.PROTOCOL_ERROR), [headers(1), window_update(1, 0)]
    ),
    "6.9 WINDOW_UPDATE of 3 bytes": Case(FRAME_SIZE, [frame(WINDOW_UPDATE, 0, 0, bytes(3))]),
    "6.9.1 DATA goes no further than the window": Case(
        Got(lambda c: payload_sizes(c) == [1]), call(1), first=((wire.INITIAL_WINDOW_SIZE, 1),)
    ),
    "6.9.1 the window grows by each WINDOW_UPDATE": Case(
        HELLO,
        [*call(1), window_update(1, 2), window_update(1, 3), window_update(1, 100)],
        first=((wire.INITIAL_WINDOW_SIZE, 1),),
    ),
    "6.9.1 connection window above 2^31 - 1": Case(
        FLOW_CONTROL, [window_update(0, wire.MOST_WINDOW), window_update(0, wire.MOST_WINDOW)]
    ),
    "6.9.1 stream window above 2^31 - 1": Case(
        StreamFault(wire.FLOW_CONTROL_ERROR),
        [headers(1), window_update(1, wire.MOST_WINDOW), window_update(1, wire.MOST_WINDOW)],
    ),
    "6.9.1 DATA beyond the stream's window": Case(
        StreamFault(wire.FLOW_CONTROL_ERROR), [headers(1), data(1, grpc_message(b"") * 13_108)]
    ),
    "6.9.1 padding counts in the stream's window": Case(
        StreamFault(wire.FLOW_CONTROL_ERROR), [headers(1), data(1, grpc_message(b"") * 13_090, pad=90)]
    ),
    "6.9.1 DATA that fills the stream's window": Case(
        Answered((b"",) * 13_107), [headers(1), data(1, grpc_message(b"") * 13_107, end=True)]
    ),
    "6.9.2 SETTINGS_INITIAL_WINDOW_SIZE opens the windows of open streams": Case(
        HELLO,
        [
            *call(1),
            settings((wire.INITIAL_WINDOW_SIZE, 1)),
            settings((wire.INITIAL_WINDOW_SIZE, 99)),
        ],
        first=((wire.INITIAL_WINDOW_SIZE, 0),),
    ),
    "6.9.2 a window below 0 must open before DATA goes on": Case(
        Got(lambda c: payload_sizes(c) == [3]),
        [
            *call(1),
            settings((wire.INITIAL_WINDOW_SIZE, 2)),
            window_update(1, 1),
        ],
        first=((wire.INITIAL_WINDOW_SIZE, 3),),
    ),
    "6.9.2 SETTINGS_INITIAL_WINDOW_SIZE that takes a stream's window above 2^31 - 1": Case(
        FLOW_CONTROL,
        [
            headers(1),
            window_update(1, 1),
            settings((wire.INITIAL_WINDOW_SIZE, wire.MOST_WINDOW)),
        ],
    ),
}


def malformed(*fields: tuple[str, str]) -> Case:
    return Case(StreamFault(wire.PROTOCOL_ERROR), [headers(1, fields, end=True)])


_MESSAGES = {
    "8.1 trailers after the messages": Case(HELLO, [headers(1), data(1, _HELLO), trailers(1)]),
    "8.1 a second HEADERS without END_STREAM": Case(
        StreamFault(wire.PROTOCOL_ERROR), [headers(1), trailers(1, end=False)]
    ),
    "8.2.1 header name in upper case": malformed(*REQUEST, ("X-Test", "ok")),
    "8.2.1 header name with a space": malformed(*REQUEST, ("x test", "ok")),
    "8.2.1 header without a name": malformed(*REQUEST, ("", "ok")),
    "8.2.1 header value with a line break": malformed(*REQUEST, ("x-test", "a\r\nb: c")),
    "8.2.1 header value with NUL": malformed(*REQUEST, ("x-test", "a\0b")),
    "8.2.1 header value that begins with a space": malformed(*REQUEST, ("x-test", " a")),
    **{
        f"8.2.2 connection-specific header {name}": malformed(*REQUEST, (name, value))
        for name, value in (
            ("connection", "keep-alive"),
            ("keep-alive", "1"),
            ("proxy-connection", "keep-alive"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
        )
    },
    "8.2.2 te other than trailers": malformed(*without("te"), ("te", "trailers, deflate")),
    "8.3 unknown pseudo-header": malformed(*REQUEST[:4], (":test", "ok"), *REQUEST[4:]),
    "8.3 pseudo-header of responses": malformed(*REQUEST[:4], (":status", "200"), *REQUEST[4:]),
    "8.3 pseudo-header after another header": malformed(*REQUEST[:3], ("x-test", "ok"), *REQUEST[3:]),
    "8.3 pseudo-header in trailers": Case(
        StreamFault(wire.PROTOCOL_ERROR), [headers(1), data(1), trailers(1, (":method", "POST"))]
    ),
    "8.3.1 empty :path": malformed(*((n, "" if n == ":path" else v) for n, v in REQUEST)),
    **{f"8.3.1 no {name}": malformed(*without(name)) for name in (":method", ":scheme", ":path")},
    **{f"8.3.1 {pair[0]} twice": malformed(pair, *REQUEST) for pair in REQUEST if pair[0][0] == ":"},
    "8.3.1 no :authority": Case(Answered(), [headers(1, without(":authority"), end=True)]),
    "8.1.1 content-length without content": malformed(*REQUEST, ("content-length", "1")),
    "8.1.1 content-length other than the content's": Case(
        StreamFault(wire.PROTOCOL_ERROR),
        [headers(1, (*REQUEST, ("content-length", "1"))), data(1, _HELLO, end=True)],
    ),
    "8.1.1 content-length of the content": Case(
        HELLO, [headers(1, (*REQUEST, ("content-length", "10"))), data(1, _HELLO, end=True)]
    ),
}

_X_TEST = b"\x85\xf2\xb2\x4a\x84\xff"
"""`x-test` with Huffman coding; the appendix of RFC 7541 has the codes."""
_HPACK = {
    "7541: 6.2 literal without indexing": Case(
        Answered(), [headers(1, end=True, after=literal(b"x-test", b"ok", 0x00))]
    ),
    "7541: 6.2 literal never indexed": Case(
        Answered(), [headers(1, end=True, after=literal(b"x-test", b"ok", 0x10))]
    ),
    "7541: 6.2 literal with a name of the static table": Case(
        Answered(), [headers(1, end=True, after=b"\x0f\x2b\x02ok")]
    ),
    "7541: 5.2 literal with Huffman coding": Case(
        Answered(), [headers(1, end=True, after=b"\0" + _X_TEST + b"\x02ok")]
    ),
    "7541: 2.3.3 index beyond both tables": Case(COMPRESSION, [headers(1, end=True, after=b"\xfe")]),
    "7541: 2.3.3 name index beyond both tables": Case(
        COMPRESSION, [headers(1, end=True, after=b"\x0f\x6f\x02ok")]
    ),
    "7541: 6.1 index 0": Case(COMPRESSION, [headers(1, end=True, after=b"\x80")]),
    "7541: 5.1 integer without an end": Case(
        COMPRESSION, [headers(1, end=True, after=b"\xff" + b"\x80" * 200)]
    ),
    "7541: 5.2 string longer than the block": Case(
        COMPRESSION, [headers(1, end=True, after=b"\0\x06x-test\x7eok")]
    ),
    "7541: 5.2 Huffman padding of more than 7 bits": Case(
        COMPRESSION, [headers(1, end=True, after=b"\0" + _X_TEST + b"\x84\x49\x50\x9f\xff")]
    ),
    "7541: 5.2 Huffman padding of zeros": Case(
        COMPRESSION, [headers(1, end=True, after=b"\0" + _X_TEST + b"\x83\x49\x50\x90")]
    ),
    "7541: 5.2 Huffman string with EOS": Case(
        COMPRESSION, [headers(1, end=True, after=b"\0" + _X_TEST + b"\x87\xff\xff\xff\xfd\x25\x42\x7f")]
    ),
    "7541: 4.2 table size update at the end of a block": Case(
        COMPRESSION, [headers(1, end=True, after=b"\x20")]
    ),
    "7541: 4.2 table size update within a block": Case(
        COMPRESSION, [frame(HEADERS, END_HEADERS, 1, b"\x20\x82\x20\x87")]
    ),
    "7541: 4.2 three table size updates": Case(COMPRESSION, [headers(1, before=b"\x20\x20")]),
    "7541: 6.3 table size update to 0 in each block": Case(
        Answered(), [headers(1, end=True), headers(3, end=True, before=b"\x20")]
    ),
    "7541: 6.3 table size above the server's SETTINGS": Case(
        COMPRESSION, [headers(1, end=True), headers(3, end=True, before=b"\x21")]
    ),
    "7541: 6.3 reference to a table that the SETTINGS have emptied": Case(
        COMPRESSION, [headers(1, end=True, after=literal(b"x-test", b"ok", 0x40) + b"\xbe")]
    ),
}

CASES = {**_FRAMES, **_STATES, **_TYPES, **_WINDOWS, **_MESSAGES, **_HPACK}


@pytest.mark.untraced
@pytest.mark.parametrize("bytewise", [False, True], ids=["by frames", "by bytes"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_server_follows_the_rfc(case: Case, bytewise: bool) -> None:
    client = Client(Limits(streams=_STREAMS), bytewise=bytewise)
    client.handshake(*case.first)
    client.answers = case.answers
    client.send(*case.sends)
    case.outcome.check(client)


@pytest.mark.parametrize("bytewise", [False, True])
def test_first_frame_is_the_servers_settings(bytewise: bool) -> None:
    """Section 3.4: before any other frame, and the client's SETTINGS are acknowledged."""
    client = Client(bytewise=bytewise)
    client.taken()
    client.send(PREFACE, settings())
    kinds = [(one.kind, one.flags) for one in client.replies if one.kind == SETTINGS]
    assert client.replies[0].kind == SETTINGS
    assert kinds == [(SETTINGS, 0), (SETTINGS, ACK)]


@pytest.mark.parametrize(
    "first",
    [
        b"INVALID CONNECTION PREFACE\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: lane\r\n\r\n",
        PREFACE[:-1] + b"\r",
        PREFACE + ping(),
        PREFACE + frame(SETTINGS, ACK),
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
def test_another_preface_ends_the_connection(first: bytes) -> None:
    """Section 3.4; at the first wrong byte, not when there are 24 of them."""
    client = Client()
    client.send(first)
    assert [one.code for one in client.of(GOAWAY)] in ([], [wire.PROTOCOL_ERROR])
    assert client.connection.closing
    assert client.events == []


def test_goaway_names_the_last_stream() -> None:
    """Section 6.8."""
    client = Client()
    client.handshake()
    client.send(*call(7), frame(PING, 0, 3, bytes(8)))
    assert int.from_bytes(client.of(GOAWAY)[0].payload[:4], "big") == 7


def test_table_of_4096_bytes_until_the_settings_ack() -> None:
    """RFC 7541, section 4.2, and RFC 9113, section 4.3.1: the client may use the first size until its ACK."""
    client = Client()
    client.send(PREFACE, settings())
    encoder = hpack.Encoder()
    blocks = [encoder.encode(REQUEST) for _ in range(2)]
    assert len(blocks[1]) == len(REQUEST), "each header is an index of the table"
    client.send(*(frame(HEADERS, END_HEADERS, 2 * i + 1, each) for i, each in enumerate(blocks)))
    client.send(frame(SETTINGS, ACK))
    encoder.header_table_size = 0
    client.send(*(frame(HEADERS, END_HEADERS, stream, encoder.encode(REQUEST)) for stream in (5, 7)))
    assert client.opened() == [1, 3, 5, 7]


def test_table_not_shrunk_after_the_ack_is_an_error() -> None:
    """RFC 7541, section 4.2: the update stands at the beginning of the first block after the change."""
    client = Client()
    client.send(PREFACE, settings(), frame(SETTINGS, ACK))
    client.send(frame(HEADERS, END_HEADERS, 1, hpack.Encoder().encode(REQUEST)))
    assert [one.code for one in client.of(GOAWAY)] == [wire.COMPRESSION_ERROR]
    assert client.connection.closing
