"""Header values in and out, routing headers that clients send, and faults at every step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from ext_proc.pick import PickResult, Reason
from ext_proc.protocol import exchange as exchange_module
from fleet.names import HEADER_IDEMPOTENCY, HEADER_PROTOCOL, REMOVED_REQUEST_HEADERS, UPSTREAM_HEADERS
from tests.ext_proc.fake_envoy import (
    DUPLEX,
    Driven,
    FakeEnvoy,
    body_message,
    headers_message,
    trailers_message,
    with_attributes,
    with_mode,
)

if TYPE_CHECKING:
    from ext_proc.protocol.attributes import HttpRequest

PICK = PickResult(("10.0.0.1:8000",), Reason.COLD, 0.0, "0123456789abcdef", 0.25)
NO_PICK = PickResult.none(Reason.NOT_JSON)


@pytest.mark.parametrize("raw", [True, False])
def test_header_text_is_read_from_raw_value_then_value(raw: bool) -> None:
    """Envoy fills raw_value; value alone comes from older ones."""
    requests: list[HttpRequest] = []
    exchange = Driven(lambda request: requests.append(request) or NO_PICK, body_limit=1000)
    message = with_mode(headers_message([("content-encoding", b"gzip")]), "BUFFERED")
    if not raw:
        message.request_headers.headers.headers[0].raw_value = b""
        message.request_headers.headers.headers[0].value = "gzip"
    exchange(message)
    exchange(body_message(b"x", end_of_stream=True))
    assert requests[0].content_encoding == "gzip"


def test_bytes_that_are_no_utf8_break_nothing() -> None:
    """Latin-1 maps every byte."""
    requests: list[HttpRequest] = []
    exchange = Driven(lambda request: requests.append(request) or NO_PICK, body_limit=1000)
    exchange(with_mode(headers_message([("content-encoding", b"caf\xe9")]), "BUFFERED"))
    exchange(body_message(b"x", end_of_stream=True))
    assert requests[0].content_encoding == "caf\xe9"


def test_attributes_stand_in_for_headers_that_are_not_sent() -> None:
    """In single-message mode the cluster and the encoding arrive as attributes of the body message."""
    requests: list[HttpRequest] = []
    exchange = Driven(lambda request: requests.append(request) or NO_PICK, body_limit=1000)
    message = with_attributes(body_message(b"x", end_of_stream=True), xds__cluster_name="pool-a")
    fields = message.attributes["envoy.filters.http.ext_proc"].fields
    fields["request.headers['content-encoding']"].string_value = "zstd"
    exchange(with_mode(message, "BUFFERED"))
    (request,) = requests
    assert (request.body, request.complete) == (b"x", True)
    assert (request.cluster, request.content_encoding) == ("pool-a", "zstd")


@pytest.mark.parametrize("pick", [PICK, NO_PICK])
@pytest.mark.parametrize("mode", ["NONE", "BUFFERED", "BUFFERED_PARTIAL", "STREAMED", DUPLEX, "UNDECLARED"])
@pytest.mark.parametrize("ends", [True, False])
def test_routingheaders_of_a_client_are_removed_on_every_path(
    mode: str, pick: PickResult, ends: bool
) -> None:
    """None chosen or another one chosen: what the client sent never reaches the load balancer."""
    envoy = FakeEnvoy(Driven(lambda _: pick, body_limit=1000), mode)
    sent = [(name, b"10.9.9.9:1") for name in REMOVED_REQUEST_HEADERS for _ in range(2)]
    envoy.headers(sent, end_of_stream=ends)
    if not ends:
        envoy.body(b"{}", end_of_stream=True)
    seen = envoy.finish(b"" if ends else b"{}")
    assert set(REMOVED_REQUEST_HEADERS) <= seen.removed | seen.set_headers.keys()
    assert b"10.9.9.9:1" not in seen.set_headers.values()
    if seen.destination is None:
        assert not seen.set_headers


@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", DUPLEX, "STREAMED", "NONE"])
@pytest.mark.parametrize(("count", "size", "fitting"), [
    (20, 0, 5), (94, 0, 5), (96, 0, 3), (98, 0, 1), (99, 0, 0),
    (20, 60_900, 5), (20, 61_190, 3), (20, 61_260, 1), (20, 61_300, 0),
    (100, 0, 0), (110, 0, 0), (20, 61_430, 0), (20, 61_500, 0),
])  # fmt: skip
def test_headers_of_a_pick_never_break_envoys_limits(mode: str, count: int, size: int, fitting: int) -> None:
    """Envoy fails a request whose mutation breaks them, so less is told, the destination last of all."""
    envoy = FakeEnvoy(Driven(lambda _: PICK, body_limit=1000), mode)
    sent = [(f"x-{number:05}", b"v" * 10) for number in range(count)]
    sent.append(("x-large", b"v" * max(1, size - count * 17 - 7)))
    envoy.headers(sent)
    if mode != "NONE":
        envoy.body(b"{}", end_of_stream=True)
    seen = envoy.finish(b"{}")
    assert len(seen.set_headers) == fitting
    assert seen.destination == PICK.endpoints[0]
    if fitting:
        assert seen.set_headers["x-gateway-destination-endpoint"] == b"10.0.0.1:8000"


def test_own_header_over_limits_fails_no_request() -> None:
    """Its protocol header is on every request; a removal would fail those that a client fills to the brim."""
    exchange = Driven(lambda _: PICK, body_limit=1000)
    sent = [(f"x-{number}", b"v") for number in range(101)] + [(HEADER_PROTOCOL, b"HTTP/1.1")]
    (reply,) = exchange(with_mode(headers_message(sent), "BUFFERED_PARTIAL"))
    assert reply.request_headers.ByteSize() == 2, "an unchanged CONTINUE"


def test_client_key_over_limits_fails_no_request() -> None:
    """It steers nothing, and Envoy alone serves such a request where its limits are higher."""
    exchange = Driven(lambda _: PICK, body_limit=1000)
    sent = [(f"x-{number}", b"v") for number in range(101)] + [(HEADER_IDEMPOTENCY, b"k")]
    (reply,) = exchange(with_mode(headers_message(sent), "BUFFERED"))
    assert reply.request_headers.ByteSize() == 2, "an unchanged CONTINUE"


@pytest.mark.parametrize("smuggled", [1, 2])
def test_over_envoys_limits_only_what_must_go_is_removed(smuggled: int) -> None:
    """Even a removal fails such a request: right for one that smuggles, wrong for any other."""
    exchange = Driven(lambda _: PICK, body_limit=1000)
    sent = [(f"x-{number}", b"v") for number in range(120)]
    (reply,) = exchange(with_mode(headers_message(sent), "BUFFERED"))
    assert reply.request_headers.ByteSize() == 2, "an unchanged CONTINUE"
    names = REMOVED_REQUEST_HEADERS[:smuggled]
    exchange = Driven(lambda _: PICK, body_limit=1000)
    sent += [(name, b"10.9.9.9:1") for name in names]
    (reply,) = exchange(with_mode(headers_message(sent), "BUFFERED"))
    assert tuple(reply.request_headers.response.header_mutation.remove_headers) == names


def test_values_of_a_pick_are_of_fixed_form() -> None:
    """Nothing that a client wrote gets into a header value."""
    of_rank = msgspec.structs.replace(PICK, rank="3")
    envoy = FakeEnvoy(Driven(lambda _: of_rank, body_limit=1000), DUPLEX)
    envoy.headers()
    envoy.body(b'{"model":"a\\r\\nx-admin: 1"}', end_of_stream=True)
    assert envoy.seen.set_headers == {
        "x-gateway-destination-endpoint": b"10.0.0.1:8000",
        "x-warmroute-endpoint": b"10.0.0.1:8000",
        "x-warmroute-matched": b"0.00",
        "x-warmroute-reason": b"cold",
        "x-warmroute-prefix": b"0123456789abcdef",
        "x-data-parallel-rank": b"3",
    }
    assert set(UPSTREAM_HEADERS) <= envoy.seen.set_headers.keys()


FAULTS = (RuntimeError,)


class Broken:
    """A route that fails, then works: `Exchange` must not ask it again."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _request: HttpRequest) -> PickResult:
        self.calls += 1
        raise RuntimeError


@pytest.mark.parametrize("mode", ["BUFFERED", "BUFFERED_PARTIAL", DUPLEX, "UNDECLARED"])
@pytest.mark.parametrize("headers", [True, False])
def test_failing_route_leaves_the_request_whole(mode: str, headers: bool) -> None:
    """The answer is an unchanged CONTINUE of the right kind, and no byte is lost."""
    route = Broken()
    exchange = Driven(route, body_limit=100_000, faults=FAULTS)
    envoy = FakeEnvoy(exchange, mode)
    if headers:
        envoy.headers([("x-gateway-destination-endpoint", b"10.9.9.9:1")])
    pieces = [b"a" * 70_000, b"b" * 70_000] if mode == DUPLEX else [b"a" * 70_000]
    for piece in pieces:
        envoy.body(piece, end_of_stream=piece is pieces[-1])
    seen = envoy.finish(b"".join(pieces))
    assert route.calls == 1
    assert exchange.result == PickResult.none(Reason.FAULT)
    assert (seen.destination, seen.reason, seen.set_headers) == (None, "fault", {})


def test_fault_at_trailers_releases_buffer() -> None:
    """The body goes out before the reply to the trailers."""
    envoy = FakeEnvoy(Driven(Broken(), body_limit=100_000, faults=FAULTS), DUPLEX)
    envoy.headers()
    envoy.body(b"a" * 70_000, end_of_stream=False)
    envoy.trailers()
    assert envoy.finish(b"a" * 70_000, trailers=True).reason == "fault"


@pytest.mark.parametrize("mode", ["BUFFERED", DUPLEX])
@pytest.mark.parametrize(
    "step",
    [
        "headers_reply",
        "body_reply",
        "echo",
        "trailers_reply",
        "AttributeMap.read_headers",
        "AttributeMap.read_attributes",
        "budget_of",
        "headers_event",
    ],
)
@pytest.mark.parametrize("trailers", [True, False])
def test_fault_in_any_step_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, mode: str, step: str, trailers: bool
) -> None:
    """Each step fails once; what it was about to say or let go is said and let go by the fault's answer."""
    owner, _, name = step.rpartition(".")
    holder = getattr(exchange_module, owner) if owner else exchange_module
    real = getattr(holder, name)
    failed: list[str] = []

    def once(*args: Any, **kwargs: Any) -> Any:
        if not failed:
            failed.append(step)
            raise RuntimeError
        return real(*args, **kwargs)

    monkeypatch.setattr(holder, name, once)
    envoy = FakeEnvoy(Driven(lambda _: PICK, body_limit=100_000, faults=FAULTS), mode)
    envoy.headers()
    pieces = [b"a" * 70_000, b"b" * 10] if mode == DUPLEX else [b"a" * 70_000]
    for piece in pieces:
        envoy.body(piece, end_of_stream=piece is pieces[-1] and not trailers)
    if trailers:
        envoy.trailers()
    envoy.finish(b"".join(pieces), trailers=trailers)


def without_prompt(request: HttpRequest) -> PickResult:
    """What the director makes of headers that say nothing."""
    return PickResult.none(request.no_body or Reason.NO_PROMPT)


@pytest.mark.parametrize(
    ("mode", "headers", "ends", "reason"),
    [
        ("NONE", [("upgrade", b"websocket")], True, Reason.NO_SESSION),
        ("BUFFERED", [(":method", b"CONNECT")], False, Reason.NO_SESSION),
        ("NONE", [], True, Reason.NO_BODY),
        ("NONE", [], False, Reason.NO_BODY),
        ("BUFFERED", [], True, Reason.NO_BODY),
        ("STREAMED", [], False, Reason.STREAMED),
        ("STREAMED", [("content-type", b"audio/wav")], False, Reason.STREAMED),
        ("GRPC", [], False, Reason.STREAMED),
        ("BUFFERED", [("content-type", b"Multipart/form-data; boundary=x")], False, Reason.NOT_JSON),
        (DUPLEX, [("content-type", b"application/grpc")], False, Reason.NOT_JSON),
    ],
)
def test_headers_that_decide_say_why(
    mode: str, headers: list[tuple[str, bytes]], ends: bool, reason: Reason
) -> None:
    exchange = Driven(without_prompt, body_limit=1000)
    exchange(with_mode(headers_message(headers, end_of_stream=ends), mode))
    assert exchange.result == PickResult.none(reason)


def test_headers_that_say_enough_for_no_pick_keep_its_reason() -> None:
    for told in (Reason.UNKNOWN_MODEL, Reason.NO_ENDPOINT):
        exchange = Driven(lambda _, told=told: PickResult.none(told), body_limit=1000)
        exchange(with_mode(headers_message([("upgrade", b"websocket")], end_of_stream=True), "NONE"))
        assert exchange.result == PickResult.none(told)


def test_trailers_without_a_body_end_the_wait() -> None:
    """Full duplex headers are released by trailers alone."""
    envoy = FakeEnvoy(Driven(without_prompt, body_limit=1000), DUPLEX)
    envoy.headers()
    envoy.trailers()
    assert envoy.finish(b"", trailers=True).reason == "no_body"


def test_trailers_in_buffered_mode_get_one_reply() -> None:
    """With or without a body before them."""
    exchange = Driven(without_prompt, body_limit=1000)
    exchange(with_mode(headers_message(), "BUFFERED"))
    (reply,) = exchange(trailers_message())
    assert reply.WhichOneof("response") == "request_trailers"
    assert exchange.result == PickResult.none(Reason.NO_BODY)
