"""Any mode, body, chunking, answer and fault against a fake Envoy that asserts the rules on every message."""

from __future__ import annotations

import gzip
import json
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc.pick import PickResult, Reason, Refusal
from ext_proc.processor import RequestStream
from ext_proc.protocol.attributes import AttributeMap
from fleet.names import REMOVED_REQUEST_HEADERS, SUBSET_KEY, SUBSET_NAMESPACE
from tests.ext_proc.fake_envoy import BUFFERING, DUPLEX, MODES, Driven, FakeEnvoy, answer
from tests.ext_proc.test_server_stream import Stage
from tests.ext_proc.worlds import chat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ext_proc.protocol.attributes import HttpRequest

LIMIT = 3000
PICK = PickResult(("10.0.0.1:8000", "10.0.0.2:8000"), Reason.WARM, 0.5, "00ff00ff00ff00ff", 0.25)
REFUSAL = PickResult.refuse(Reason.NOT_READY, Refusal(503, 'none "ready"', 0.5))
TEXT = chat("Grüße, 世界 🦙 " * 40)
BODIES = {
    "empty": b"",
    "small": chat("hi"),
    "multi-byte": TEXT,
    "cut": TEXT[: len(TEXT) // 2],
    "no JSON": b"\xff\x00\xfe" * 99,
    "gzip": gzip.compress(TEXT),
    "deflate": zlib.compress(TEXT),
    "over the limit": chat("x" * 2 * LIMIT),
    "many pieces": chat("y" * 150_000),
}
ALL_MODES = ["UNDECLARED", *MODES]


def cut(body: bytes, at: Sequence[int]) -> list[bytes]:
    """Cut a body at these places, which are taken modulo its length."""
    places = sorted({place % (len(body) + 1) for place in at})
    return [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]


def play(
    envoy: FakeEnvoy,
    mode: str,
    body: bytes,
    pieces: list[bytes],
    *,
    headers: bool,
    ends: bool,
    trailers: bool,
) -> bytes:
    """Send a request as Envoy does in this mode; returns what was sent of its body."""
    if headers:
        sent = [
            (":method", b"POST"),
            (":path", b"/v1/chat/completions"),
            ("content-type", b"application/json"),
        ]
        envoy.headers([*sent, (REMOVED_REQUEST_HEADERS[0], b"10.9.9.9:1")], end_of_stream=ends)
    if ends or mode == "NONE":
        return b""
    if mode in BUFFERING or mode == "UNDECLARED":
        pieces = [body]
    for number, piece in enumerate(pieces):
        if envoy.seen.refusal is None:
            envoy.body(piece, end_of_stream=number == len(pieces) - 1 and not trailers)
    if trailers and envoy.seen.refusal is None:
        envoy.trailers()
    return b"".join(pieces)


@st.composite
def routes(draw: st.DrawFn) -> tuple[str, Callable[[HttpRequest], PickResult]]:
    """A way to choose: always, never, refusing, or failing."""
    name = draw(st.sampled_from(["pick", "none", "refuse", "fail"]))

    def route(_request: HttpRequest) -> PickResult:
        if name == "fail":
            raise ValueError
        return {"pick": PICK, "none": PickResult.none(Reason.COMPRESSED), "refuse": REFUSAL}[name]

    return name, route


@settings(max_examples=400, deadline=None)
@given(
    mode=st.sampled_from(ALL_MODES),
    response_mode=st.sampled_from(["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX]),
    body=st.one_of(st.sampled_from(list(BODIES.values())), st.binary(max_size=200)),
    at=st.lists(st.integers(0, 1 << 20), max_size=6),
    way=routes(),
    flags=st.tuples(*[st.booleans()] * 5),
    response=st.lists(st.binary(max_size=200_000), max_size=4),
)
def test_every_exchange_keeps_to_envoys_rules(
    mode: str,
    response_mode: str,
    body: bytes,
    at: list[int],
    way: tuple[str, Callable[[HttpRequest], PickResult]],
    flags: tuple[bool, bool, bool, bool, bool],
    response: list[bytes],
) -> None:
    """Right kind and number of replies, no byte changed, lost or moved, whatever comes in whatever pieces."""
    name, route = way
    headers, ends, trailers, response_trailers, clears = flags
    headers = headers or mode == "NONE"
    if mode == "UNDECLARED" and response_mode == DUPLEX:
        response_mode = "STREAMED"  # Whoever knows full duplex tells the mode.
    ends = ends and headers
    faults = (ValueError,) if name == "fail" else ()
    exchange = Driven(route, faults=faults, body_limit=LIMIT, clear_route_cache=clears)

    envoy = FakeEnvoy(exchange, mode, response_mode=response_mode, may_refuse=name == "refuse")
    sent = play(envoy, mode, body, cut(body, at), headers=headers, ends=ends, trailers=trailers)
    seen = envoy.finish(sent, trailers=trailers and not ends)
    if seen.refusal is not None:
        return
    assert exchange.result is not None
    if headers or mode != "GRPC":
        assert seen.reason == exchange.result.reason.value
    assert seen.cleared_route_cache is (clears and bool(seen.set_headers))
    envoy.respond([(":status", b"200")], response, trailers=response_trailers)


@pytest.mark.untraced
@pytest.mark.parametrize("mode", ALL_MODES)
@pytest.mark.parametrize("size", [1, 7, 1 << 30])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_the_pick_is_the_same_in_every_mode_that_shows_the_body(mode: str, size: int, body: bytes) -> None:
    """Cuts in the midst of a character or of JSON change nothing, and neither does how the headers come."""
    if size == 1 and len(body) > 5000:
        body = body[-5000:]
    whole = Stage().play(body)
    stage = Stage()
    stream = RequestStream(stage.service)
    envoy = FakeEnvoy(partial(answer, stream), mode)
    pieces = [body[start : start + size] for start in range(0, len(body), size)] or [b""]
    sent = play(envoy, mode, body, pieces, headers=True, ends=False, trailers=False)
    stream.close()
    seen = envoy.finish(sent)
    if mode in {*BUFFERING, DUPLEX, "UNDECLARED"}:
        assert (seen.destination, seen.reason) == (whole.destination, whole.reason)
    else:
        assert seen.destination is None
        assert seen.reason == ("no_body" if mode == "NONE" else "streamed")


@pytest.mark.parametrize("mode", ALL_MODES)
@pytest.mark.parametrize("response_mode", ["NONE", "STREAMED", "BUFFERED", DUPLEX])
def test_observability_mode_is_silent_on_both_sides(mode: str, response_mode: str) -> None:
    """No reply, no pick, nothing in flight, for the request and for its response."""
    stage = Stage()
    stream = RequestStream(stage.service)
    envoy = FakeEnvoy(partial(answer, stream), mode, response_mode=response_mode, observes=True)
    play(envoy, mode, TEXT, cut(TEXT, [5, 9]), headers=True, ends=False, trailers=True)
    envoy.respond([], [b"data: {}\n\n", b"data: [DONE]\n\n"], trailers=True)
    assert stage.in_flight() == 0
    stream.close()
    assert sum(stage.picks(reason.value) for reason in Reason) == 0


@pytest.mark.parametrize(
    "mode", ["NONE", "STREAMED", "GRPC", "BUFFERED", "BUFFERED_PARTIAL", DUPLEX, "UNDECLARED"]
)
def test_headers_that_decide_may_pick(mode: str) -> None:
    """Sessions and models in a path need no body: the pick rides on the headers' reply."""
    asked: list[HttpRequest] = []
    exchange = Driven(
        lambda request: asked.append(request) or PICK,
        body_limit=LIMIT,
        attribute_map=AttributeMap(["X-Session-Id"]),
    )
    envoy = FakeEnvoy(exchange, mode)
    ends = mode not in {"NONE", "STREAMED", "GRPC"}
    envoy.headers(
        [
            (":path", b"/v1/realtime?model=m"),
            ("x-session-id", b"s"),
            ("x-session-id", b"t"),
            ("cookie", b"c"),
        ],
        end_of_stream=ends,
    )
    (request,) = asked
    assert request.no_body is not None
    assert request.path == "/v1/realtime?model=m"
    assert request.attributes == {":path": "/v1/realtime?model=m", "x-session-id": "s,t"}
    assert envoy.seen.set_headers["x-gateway-destination-endpoint"] == b"10.0.0.1:8000,10.0.0.2:8000"
    if not ends and mode != "NONE":
        for piece in (b"{", b"}"):
            envoy.body(piece, end_of_stream=piece == b"}")
    assert len(asked) == 1


@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX])
@pytest.mark.parametrize(
    "headers",
    [
        [(":method", b"GET"), ("upgrade", b"WebSocket"), ("connection", b"keep-alive, Upgrade")],
        [(":method", b"POST"), ("upgrade", b"websocket"), ("content-length", b"9")],
        [(":method", b"CONNECT"), (":protocol", b"websocket")],
        [(":method", b"GET"), ("upgrade", b"h2c")],
    ],
)
def test_upgrades_are_decided_at_the_headers(mode: str, headers: list[tuple[str, bytes]]) -> None:
    """Frames are neither read nor stored, and whatever the client says of routing is removed."""
    asked: list[HttpRequest] = []
    exchange = Driven(lambda request: asked.append(request) or PICK, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, mode)
    envoy.headers([*headers, (REMOVED_REQUEST_HEADERS[0], b"10.9.9.9:1")])
    assert exchange.result == PICK
    assert envoy.seen.replies[0].HasField("mode_override") is (mode != "NONE"), (
        "Envoy may spare us the frames"
    )
    assert not exchange.exchange.lasts
    if mode != "NONE":
        envoy.body(b"\x81\x05hello", end_of_stream=False)
    assert [(request.no_body is not None) for request in asked] == [True]


@pytest.mark.parametrize("kind", ["list", "text"])
@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "STREAMED", DUPLEX])
def test_what_a_gateway_allows_reaches_the_question(mode: str, kind: str) -> None:
    """As a list or as text with commas, in whatever mode."""
    asked: list[HttpRequest] = []
    allowed = ["10.0.0.1:80", " 10.0.0.2 ", ""]
    metadata = {SUBSET_NAMESPACE: {SUBSET_KEY: allowed if kind == "list" else ",".join(allowed)}}
    exchange = Driven(lambda request: asked.append(request) or PICK, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, mode, metadata=metadata)
    play(envoy, mode, TEXT, [TEXT], headers=True, ends=False, trailers=False)
    assert [request.subset for request in asked] == [("10.0.0.1:80", "10.0.0.2")]


@pytest.mark.parametrize(
    ("metadata", "subset"),
    [
        ({}, None),
        ({SUBSET_NAMESPACE: {}}, None),
        ({SUBSET_NAMESPACE: {"other": ["1.2.3.4"]}}, None),
        ({SUBSET_NAMESPACE: {SUBSET_KEY: 7}}, None),
        ({SUBSET_NAMESPACE: {SUBSET_KEY: []}}, ()),
        ({SUBSET_NAMESPACE: {SUBSET_KEY: ""}}, ()),
        ({SUBSET_NAMESPACE: {SUBSET_KEY: ["1.2.3.4", 7, None, {}]}}, ("1.2.3.4",)),
    ],
)
def test_nothing_allowed_is_not_the_same_as_nothing_said(
    metadata: dict[str, Any], subset: tuple[str, ...] | None
) -> None:
    """An empty list allows nobody; what is no list says nothing; entries that are no text are passed over."""
    asked: list[HttpRequest] = []
    exchange = Driven(lambda request: asked.append(request) or PICK, body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, "BUFFERED", metadata=metadata)
    play(envoy, "BUFFERED", TEXT, [TEXT], headers=True, ends=False, trailers=False)
    assert asked[0].subset == subset


@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX, "UNDECLARED"])
@pytest.mark.parametrize("after", [None, 2.2])
def test_a_refusal_is_an_answer_that_clients_understand(mode: str, after: float | None) -> None:
    """One immediate response, JSON in OpenAI's form, Retry-After in whole seconds, and silence after it."""
    refusal = Refusal(429, 'too "busy"\n', after)
    exchange = Driven(lambda _: PickResult.refuse(Reason.OVER_LIMIT, refusal), body_limit=LIMIT)
    envoy = FakeEnvoy(exchange, mode, may_refuse=True)
    play(envoy, mode, TEXT, [TEXT], headers=True, ends=False, trailers=False)
    answer = envoy.seen.refusal
    assert answer is not None
    assert answer.status.code == 429
    assert json.loads(answer.body)["error"] == {
        "message": refusal.message,
        "type": "rate_limit_error",
        "param": None,
        "code": "overloaded",
    }
    told = {option.header.key: option.header.raw_value for option in answer.headers.set_headers}
    assert told.get("retry-after") == (b"3" if after else None)
    late = FakeEnvoy(exchange, mode)
    late._count = late._take = lambda *_: None  # type: ignore[assignment,method-assign]
    assert late.body(b"late", end_of_stream=True) == []
    assert late.trailers() == []
