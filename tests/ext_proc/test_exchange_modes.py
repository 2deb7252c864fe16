"""Every body mode, body and chunking against a fake Envoy that asserts the rules on each message."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from ext_proc.pick import PickResult, Reason, Refusal
from ext_proc.protocol.body_buffer import BufferedBytes
from ext_proc.protocol.modes import State
from tests.ext_proc.fake_envoy import DUPLEX, Driven, FakeEnvoy, body_message, headers_message, with_mode

if TYPE_CHECKING:
    from ext_proc.protocol.attributes import HttpRequest
    from tests.ext_proc.fake_envoy import Seen

LIMIT = 200_000
PICK = PickResult(("10.0.0.1:8000", "10.0.0.2:8000"), Reason.WARM, 0.5, "00ff00ff00ff00ff", 0.25)
BODIES = {
    "empty": b"",
    "one byte": b"x",
    "small": b'{"model":"m","prompt":"hi"}',
    "invalid utf-8": b"\xff\x00\xfe" * 99,
    "piece - 1": b"a" * (62 * 1024 - 1),
    "piece": b"b" * (62 * 1024),
    "piece + 1": b"c" * (62 * 1024 + 1),
    "over the limit": bytes(range(256)) * 1200,
}
CHUNKS = [1 << 30, 65_536, 8_191]


class Choice:
    """A route function that notes what it was asked; by headers alone it knows nobody unless told."""

    def __init__(self, pick: PickResult = PICK, by_headers: PickResult | None = None) -> None:
        self.pick = pick
        self.by_headers = by_headers
        self.asked: list[HttpRequest] = []

    def __call__(self, request: HttpRequest) -> PickResult:
        self.asked.append(request)
        if request.no_body is not None:
            assert (request.body, request.complete) == (b"", False)
            return self.by_headers or PickResult.none(request.no_body)
        return self.pick

    @property
    def bodies(self) -> list[tuple[bytes, bool]]:
        """Each body that was read, and whether as the whole of it."""
        return [(asked.body, asked.complete) for asked in self.asked if not asked.no_body]


def chunked(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)] or [b""]


def play(
    mode: str, body: bytes, size: int, *, headers: bool = True, trailers: bool = False
) -> tuple[Choice, Driven, Seen]:
    choice = Choice()
    exchange = Driven(choice, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, mode)
    if headers:
        envoy.headers([(":method", b"POST"), ("content-type", b"application/json")])
    pieces = chunked(body, size)
    if mode == "BUFFERED":
        pieces = [body]
    elif mode == "BUFFERED_PARTIAL":
        pieces = pieces[:1]
    for number, piece in enumerate(pieces):
        cut = mode == "BUFFERED_PARTIAL" and len(piece) < len(body)
        envoy.body(piece, end_of_stream=number == len(pieces) - 1 and not trailers and not cut)
    if trailers:
        envoy.trailers()
    return choice, exchange, envoy.finish(b"".join(pieces), trailers=trailers)


@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("trailers", [False, True])
def test_full_duplex_echoes_every_byte_and_picks(body: bytes, size: int, trailers: bool) -> None:
    """The pick rides on the headers' reply, which waits for the body; the body comes back as it was."""
    choice, _, seen = play(DUPLEX, body, size, trailers=trailers)
    assert seen.destination == "10.0.0.1:8000,10.0.0.2:8000"
    assert seen.set_headers["x-warmroute-endpoint"] == b"10.0.0.1:8000"
    assert seen.replies[0].WhichOneof("response") == "request_headers"
    (asked,) = choice.asked
    assert asked.body == body[: len(asked.body)]
    assert len(asked.body) == min(len(body), LIMIT)
    assert asked.complete is (len(body) <= LIMIT)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("headers", [False, True])
@pytest.mark.parametrize("trailers", [False, True])
def test_buffered_decides_on_the_one_body_message(body: bytes, headers: bool, trailers: bool) -> None:
    """The body is whole even when trailers keep end_of_stream false."""
    choice, _, seen = play("BUFFERED", body, 1 << 30, headers=headers, trailers=trailers)
    assert seen.destination == "10.0.0.1:8000,10.0.0.2:8000"
    assert seen.metadata["warmroute"] == {
        "endpoint": "10.0.0.1:8000",
        "matched": "0.50",
        "reason": "warm",
        "prefix": "00ff00ff00ff00ff",
        "expected": "0.250000",
    }
    assert bool(seen.set_headers) is headers, "without headers Envoy drops a header mutation"
    assert choice.bodies == [(body[:LIMIT], len(body) <= LIMIT)]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("size", CHUNKS)
def test_buffered_partial_reads_a_leading_part_as_cut(body: bytes, size: int) -> None:
    """Without end_of_stream more follows that Envoy does not send."""
    choice, _, seen = play("BUFFERED_PARTIAL", body, size)
    assert seen.destination is not None
    sent = chunked(body, size)[0]
    assert choice.bodies == [(sent[:LIMIT], sent == body and len(body) <= LIMIT)]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("size", CHUNKS)
@pytest.mark.parametrize("headers", [False, True])
def test_streamed_answers_each_piece_by_weights(body: bytes, size: int, headers: bool) -> None:
    """The headers have left: a pick by the body would not be obeyed, so none is made."""
    choice, exchange, seen = play("STREAMED", body, size, headers=headers)
    assert choice.bodies == []
    assert exchange.result == PickResult.none(Reason.STREAMED)
    assert seen.destination is None
    assert seen.reason == "streamed"


@pytest.mark.parametrize(
    "mode", ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX, "GRPC", "UNDECLARED"]
)
def test_headers_that_end_the_stream_get_one_reply(mode: str) -> None:
    """GET, HEAD and OPTIONS have no body to wait for."""
    choice = Choice()
    exchange = Driven(choice, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, mode)
    assert len(envoy.headers([(":method", b"GET")], end_of_stream=True)) == 1
    assert exchange.exchange.state is State.PICKED
    assert exchange.result == PickResult.none(Reason.NO_BODY)
    assert choice.bodies == []


@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", "UNDECLARED"])
def test_body_after_ended_headers_gets_no_pick(mode: str) -> None:
    """A contradiction on Envoy's side makes no double answer."""
    choice = Choice()
    envoy = FakeEnvoy(Driven(choice, body_limit=LIMIT), mode)
    envoy.headers(end_of_stream=True)
    assert len(envoy.body(b"late", end_of_stream=True)) == 1
    assert choice.bodies == []


def test_mode_none_decides_at_the_headers() -> None:
    """No body will come, so nothing waits for one."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, "NONE")
    envoy.headers()
    assert exchange.result == PickResult.none(Reason.NO_BODY)
    assert envoy.finish(b"").reason == "no_body"


def test_without_protocol_config_a_whole_body_is_picked_for() -> None:
    """Envoys before protocol_config tell the mode only by what they send."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, "UNDECLARED")
    envoy.headers()
    envoy.body(b"{}", end_of_stream=True)
    assert envoy.finish(b"{}").destination is not None


def test_piece_without_protocol_config_is_streamed() -> None:
    """Neither whole nor announced as partial."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    FakeEnvoy(exchange, "UNDECLARED").body(b"{", end_of_stream=False)
    assert exchange.result == PickResult.none(Reason.STREAMED)


def test_the_mode_is_read_from_the_first_message_only() -> None:
    """Envoy announces it once; a later one without it does not change the mode."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    assert exchange(with_mode(headers_message(), DUPLEX)) == []
    assert exchange.exchange.state is State.BUFFERING
    replies = exchange(with_mode(body_message(b"{}", end_of_stream=True), "BUFFERED"))
    assert [reply.WhichOneof("response") for reply in replies] == ["request_headers", "request_body"]
    assert replies[1].request_body.response.body_mutation.streamed_response.body == b"{}"


@pytest.mark.parametrize("mode", ["BUFFERED", "STREAMED", DUPLEX])
def test_observability_mode_gets_no_reply_and_no_pick(mode: str) -> None:
    """Envoy would not obey, so nothing may be counted."""
    choice = Choice()
    exchange = Driven(choice, body_limit=LIMIT)
    for message in (
        with_mode(headers_message(), mode),
        body_message(b"{}", end_of_stream=True),
        headers_message(end_of_stream=True),
    ):
        message.observability_mode = True
        assert exchange(message) == []
    assert exchange.result is None
    assert choice.bodies == []


def test_full_duplex_stops_holding_at_the_limit() -> None:
    """A body without end is held no longer than it is inspected; the rest is echoed as it comes."""
    choice = Choice()
    envoy = FakeEnvoy(Driven(choice, body_limit=1000), DUPLEX)
    assert envoy.headers() == []
    assert envoy.body(b"a" * 999, end_of_stream=False) == []
    assert len(envoy.body(b"b" * 500, end_of_stream=False)) == 2
    assert choice.bodies == [(b"a" * 999 + b"b", False)]
    assert len(envoy.body(b"c", end_of_stream=False)) == 1
    assert envoy.body(b"", end_of_stream=False) == [], "nothing to echo, nothing to say"
    envoy.body(b"", end_of_stream=True)
    envoy.finish(b"a" * 999 + b"b" * 500 + b"c")


def test_full_duplex_without_headers_has_pick_on_first_piece() -> None:
    """Header mode SKIP leaves no other reply for the metadata."""
    envoy = FakeEnvoy(Driven(Choice(), body_limit=LIMIT), DUPLEX)
    envoy.body(b"{}", end_of_stream=True)
    seen = envoy.finish(b"{}")
    assert seen.replies[0].HasField("dynamic_metadata")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("content-type", b"multipart/form-data; boundary=x")], Reason.NOT_JSON),
        ([("content-type", b"Application/Octet-Stream")], Reason.NOT_JSON),
        ([("upgrade", b"websocket")], Reason.NO_SESSION),
        ([(":method", b"CONNECT")], Reason.NO_SESSION),
    ],
)
def test_full_duplex_never_holds_what_cannot_be_read(
    headers: list[tuple[str, bytes]], reason: Reason
) -> None:
    """Uploads and upgrades pass at once: holding an upgrade would hang it."""
    choice = Choice()
    exchange = Driven(choice, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, DUPLEX)
    assert len(envoy.headers(headers)) == 1
    assert exchange.result == PickResult.none(reason)
    for piece in chunked(b"z" * 150_000, 60_000):
        assert len(envoy.body(piece, end_of_stream=False)) == 1
    envoy.body(b"", end_of_stream=True)
    envoy.finish(b"z" * 150_000)
    assert choice.bodies == []


@pytest.mark.parametrize("mode", ["BUFFERED", "NONE"])
@pytest.mark.parametrize("response_mode", ["NONE", "BUFFERED", "STREAMED", DUPLEX])
def test_messages_of_the_response_are_answered_unchanged(mode: str, response_mode: str) -> None:
    """We never ask for them, but other people's configurations send them."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    exchange(with_mode(headers_message(end_of_stream=True), mode, response_mode))
    for kind in ("response_headers", "response_body", "response_trailers"):
        message = headers_message()
        getattr(message, kind).SetInParent()
        if kind == "response_body":
            message.response_body.body = b"data: {}\n\n"
            message.response_body.end_of_stream = True
        (reply,) = exchange(message)
        assert reply.WhichOneof("response") == kind
        assert not reply.HasField("dynamic_metadata")
        if kind == "response_body" and response_mode == DUPLEX:
            piece = reply.response_body.response.body_mutation.streamed_response
            assert (piece.body, piece.end_of_stream) == (b"data: {}\n\n", True)
        else:
            inner = getattr(reply, kind)
            assert inner.ByteSize() == (0 if kind.endswith("trailers") else 2)


def _flushed(*events: bytes) -> list[bytes]:
    coder = zlib.compressobj(wbits=31)
    return [coder.compress(event) + coder.flush(zlib.Z_SYNC_FLUSH) for event in events] + [coder.flush()]


@pytest.mark.parametrize("mode", ["BUFFERED", DUPLEX])
@pytest.mark.parametrize("response_mode", ["BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX])
@pytest.mark.parametrize(
    ("encoding", "pieces"),
    [
        (b"", [b"da", b'ta: {"a', b'":1}\n', b"\n", b"data: {}\r\n\r", b"\ndata: [DONE]\n\n"]),
        (b"", [b"data: {}\n\n", b'data: {"cut off'.ljust(70_000, b" ")]),
        (b"gzip", _flushed(b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n")),
        (b"gzip", [b""]),
        (b"gzip", [b"no gzip at all"]),
    ],
)
def test_a_response_goes_on_as_it_came_however_it_is_cut(
    mode: str, response_mode: str, encoding: bytes, pieces: list[bytes]
) -> None:
    """Events cut anywhere, encodings that are broken or empty: nothing of a response is read."""
    envoy = FakeEnvoy(Driven(Choice(), body_limit=LIMIT), mode, response_mode=response_mode)
    envoy.headers()
    envoy.body(b"{}", end_of_stream=True)
    envoy.finish(b"{}")
    headers = [(":status", b"200"), *([("content-encoding", encoding)] if encoding else [])]
    envoy.respond(headers, pieces)
    if response_mode == DUPLEX:
        assert envoy.seen.response_body == b"".join(pieces)


@pytest.mark.parametrize(
    ("mode", "response_mode", "with_body", "without"),
    [
        ("BUFFERED", "NONE", True, False),
        ("BUFFERED_PARTIAL", "NONE", True, False),
        ("STREAMED", "NONE", True, False),
        ("NONE", "NONE", False, False),
        (DUPLEX, "NONE", False, False),
        (DUPLEX, DUPLEX, True, True),
        ("NONE", "STREAMED", True, True),
        ("BUFFERED", "BUFFERED", True, True),
        ("UNDECLARED", "NONE", True, False),
    ],
)
def test_stream_lasts_only_where_envoy_waits_for_more(
    mode: str, response_mode: str, with_body: bool, without: bool
) -> None:
    """What real Envoys do is in tests/envoy: a life that is too short would tell of an idle endpoint."""
    for ends, lasts in ((False, with_body), (True, without)):
        exchange = Driven(Choice(), body_limit=LIMIT)
        exchange(with_mode(headers_message(end_of_stream=ends), mode, response_mode))
        if not ends:
            exchange(body_message(b"{}", end_of_stream=True))
        assert exchange.exchange.lasts is lasts


@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX, "UNDECLARED"])
@pytest.mark.parametrize("trailers", [True, False])
def test_a_stream_may_leave_when_no_byte_is_on_its_way(mode: str, trailers: bool) -> None:
    """Only in the midst of a body that Envoy does not keep whole would it cost some."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    assert exchange.exchange.may_leave
    envoy = FakeEnvoy(exchange, mode)
    envoy.headers()
    assert exchange.exchange.may_leave is (mode in {"NONE", "BUFFERED"})
    if mode == "NONE":
        return
    envoy.body(b"{", end_of_stream=False)
    assert exchange.exchange.may_leave is (mode in {"BUFFERED", "BUFFERED_PARTIAL"})
    if trailers:
        envoy.trailers()
    else:
        envoy.body(b"}", end_of_stream=True)
    assert exchange.exchange.may_leave


def test_a_stream_that_carries_the_response_does_not_leave() -> None:
    """A piece may be on its way to us at any time; Envoy ends the stream with the response."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, DUPLEX, response_mode=DUPLEX)
    envoy.headers()
    envoy.body(b"{}", end_of_stream=True)
    assert not exchange.exchange.may_leave


@pytest.mark.parametrize("headers", [True, False])
@pytest.mark.parametrize("refuses", [True, False])
def test_who_leaves_early_gives_back_what_is_held(headers: bool, refuses: bool) -> None:
    """Of full duplex: the headers' reply with a pick by what has come, and the body without an end."""
    choice = Choice(PickResult.refuse(Reason.NOT_READY, Refusal(503, "no")) if refuses else PICK)
    exchange = Driven(choice, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, DUPLEX, may_refuse=True)
    if headers:
        envoy.headers()
    envoy.body(b"a" * 70_000, end_of_stream=False)
    for reply in exchange.leave_early():
        envoy._take(reply)
    assert choice.bodies == [(b"a" * 70_000, False)]
    if refuses:
        assert envoy.seen.refusal is not None
    else:
        assert (envoy.seen.body, envoy.seen.ended) == (b"a" * 70_000, False)
        assert envoy.seen.destination is not None
    assert exchange.leave_early() == [], "once"


def test_bodies_that_are_held_have_a_limit_over_all_requests() -> None:
    """Beyond it a request is picked by what has come, and what goes on later is echoed as it comes."""
    held, choice = BufferedBytes(100_000), Choice()
    exchanges = [Driven(choice, body_limit=LIMIT, buffered=held) for _ in range(4)]
    envoys = [FakeEnvoy(exchange, DUPLEX) for exchange in exchanges]
    for envoy in envoys:
        envoy.headers()
        envoy.body(b"a" * 40_000, end_of_stream=False)
    assert choice.bodies == [(b"a" * 40_000, False)] * 2
    assert held.now == 80_000
    for envoy in envoys:
        envoy.body(b"b", end_of_stream=True)
        envoy.finish(b"a" * 40_000 + b"b")
    assert held.now == 0
    assert len(choice.bodies) == 4


@pytest.mark.parametrize("mode", ["BUFFERED", "STREAMED", "BUFFERED_PARTIAL"])
def test_who_holds_nothing_gives_nothing_back(mode: str) -> None:
    exchange = Driven(Choice(), body_limit=LIMIT)
    assert exchange.leave_early() == []
    FakeEnvoy(exchange, mode).headers()
    assert exchange.leave_early() == []


def test_grpc_mode_echoes_each_message_with_its_flags() -> None:
    """A gRPC message is neither split nor merged, and its compression flag stays."""
    exchange = Driven(Choice(), body_limit=LIMIT)
    exchange(with_mode(headers_message(), "GRPC"))
    message = body_message(b"frame", end_of_stream=False)
    message.request_body.grpc_message_compressed = True
    (reply,) = exchange(message)
    piece = reply.request_body.response.body_mutation.streamed_response
    assert (piece.body, piece.end_of_stream, piece.grpc_message_compressed) == (b"frame", False, True)


def test_a_message_of_no_known_kind_gets_no_reply() -> None:
    """Nothing of the right kind could be said; Envoy's timeout and failure mode decide."""
    assert Driven(Choice(), body_limit=LIMIT)(with_mode(headers_message(), "NONE").__class__()) == []
