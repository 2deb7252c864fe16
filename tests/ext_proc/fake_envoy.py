"""An Envoy without a socket: it sends what its mode demands and asserts the rules on each reply."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ext_proc.pick import PickResult, Reason
from ext_proc.protocol.exchange import Exchange, NeedsPick
from fleet.envoy_api.config.core.v3 import base_pb2
from fleet.envoy_api.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.names import DESTINATION_KEY, EXT_PROC_FILTER, REMOVED_REQUEST_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ext_proc.processor import RequestStream
    from ext_proc.protocol.attributes import HttpRequest

MODES: dict[str, Any] = dict(processing_mode_pb2.ProcessingMode.BodySendMode.items())
DUPLEX = "FULL_DUPLEX_STREAMED"
BUFFERING = ("BUFFERED", "BUFFERED_PARTIAL")
STREAM_PIECE_LIMIT = 64 * 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]+")


def headers_message(
    headers: Sequence[tuple[str, bytes]] = (), *, end_of_stream: bool = False
) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    message.request_headers.end_of_stream = end_of_stream
    for key, raw_value in headers:
        message.request_headers.headers.headers.append(base_pb2.HeaderValue(key=key, raw_value=raw_value))
    return message


def body_message(body: bytes, *, end_of_stream: bool) -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    message.request_body.body = body
    message.request_body.end_of_stream = end_of_stream
    return message


def trailers_message(kind: str = "request_trailers") -> pb.ProcessingRequest:
    message = pb.ProcessingRequest()
    getattr(message, kind).SetInParent()
    return message


class Driven:
    """An exchange with what answers its picks: the processor in small. A callable for `FakeEnvoy`.

    `faults` are exceptions of `route` or of the exchange after which the request goes on without a pick.
    """

    def __init__(
        self,
        route: Callable[[HttpRequest], PickResult],
        *,
        faults: tuple[type[Exception], ...] = (),
        **options: Any,
    ) -> None:
        self.exchange = Exchange(**options)
        self._route = route
        self._faults = faults

    def __call__(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        try:
            return self._answered(self.exchange.receive(message))
        except self._faults:
            return parsed(self.exchange.resume(PickResult.none(Reason.FAULT)))

    def leave_early(self) -> list[pb.ProcessingResponse]:
        return self._answered(self.exchange.leave_early())

    @property
    def result(self) -> PickResult | None:
        return self.exchange.result

    def _answered(self, event: list[bytes] | NeedsPick) -> list[pb.ProcessingResponse]:
        if isinstance(event, list):
            return parsed(event)
        result = PickResult.none(Reason.STREAMED) if event.request.late else self._route(event.request)
        return parsed(self.exchange.resume(result))


def with_mode(message: pb.ProcessingRequest, request: str, response: str = "NONE") -> pb.ProcessingRequest:
    if request == "UNDECLARED":
        return message
    message.protocol_config.request_body_mode = MODES[request]
    message.protocol_config.response_body_mode = MODES[response]
    return message


def with_attributes(message: pb.ProcessingRequest, **attributes: str) -> pb.ProcessingRequest:
    fields = message.attributes[EXT_PROC_FILTER].fields
    for name, value in attributes.items():
        fields[name.replace("__", ".")].string_value = value
    return message


@dataclass
class Seen:
    """What came of one exchange on Envoy's side."""

    replies: list[pb.ProcessingResponse] = field(default_factory=list)
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    """The request's headers as they go on."""
    body: bytes = b""
    ended: bool = False
    set_headers: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    cleared_route_cache: bool = False
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    response_body: bytes = b""
    response_ended: bool = False
    refusal: pb.ImmediateResponse | None = None

    @property
    def destination(self) -> str | None:
        return self.metadata.get("envoy.lb", {}).get("x-gateway-destination-endpoint")

    @property
    def reason(self) -> str | None:
        return self.metadata.get("warmroute", {}).get("reason")


def answer(stream: RequestStream, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
    """Return a stream's replies, which wait for nothing."""
    replies = stream.replies(message)
    assert isinstance(replies, list), "the stream waits"
    return parsed(replies)


def parsed(replies: list[bytes]) -> list[pb.ProcessingResponse]:
    return [pb.ProcessingResponse.FromString(reply) for reply in replies]


class FakeEnvoy:
    """Plays one request. `send` returns the replies: of a `Driven` exchange, or `answer` of a stream.

    `may_refuse` is whether the test expects an immediate response to be possible at all; `max_headers` and
    `max_header_bytes` are the connection manager's limits, which a mutation must not break.
    """

    def __init__(
        self,
        send: Callable[[pb.ProcessingRequest], list[pb.ProcessingResponse]],
        mode: str,
        *,
        response_mode: str = "NONE",
        observes: bool = False,
        may_refuse: bool = False,
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
        max_headers: int = 100,
        max_header_bytes: int = 60 * 1024,
    ) -> None:
        self._send = send
        self._mode = mode
        self._response_mode = response_mode
        self._observes = observes
        self._may_refuse = may_refuse
        self._metadata = metadata or {}
        self._limits = (max_headers, max_header_bytes)
        self._first = True
        self._headers_open = self._headers_sent = self._no_body = False
        self._body_sent = self._response_sent = b""
        self._end_sent = self._response_end_sent = False
        self._trailers_sent = self._trailers_seen = False
        self.seen = Seen()

    def _within(self) -> bool:
        """Whether the headers as they go on keep to the limits."""
        size = sum(len(name) + len(value) for name, value in self.seen.headers)
        return len(self.seen.headers) <= self._limits[0] and size <= self._limits[1]

    def headers(
        self, headers: Sequence[tuple[str, bytes]] = (), *, end_of_stream: bool = False
    ) -> list[pb.ProcessingResponse]:
        self._headers_open = self._headers_sent = True
        self._no_body = end_of_stream
        self.seen.headers = list(headers)
        return self.send(headers_message(headers, end_of_stream=end_of_stream))

    def body(self, body: bytes, *, end_of_stream: bool) -> list[pb.ProcessingResponse]:
        self._body_sent += body
        self._end_sent = end_of_stream
        return self.send(body_message(body, end_of_stream=end_of_stream))

    def trailers(self) -> list[pb.ProcessingResponse]:
        self._trailers_sent = True
        return self.send(trailers_message())

    def respond(
        self,
        headers: Sequence[tuple[str, bytes]] = (),
        pieces: Sequence[bytes] = (),
        *,
        trailers: bool = False,
    ) -> None:
        """Play the response: headers always, the body unless its mode is NONE, trailers."""
        message = pb.ProcessingRequest()
        sent = message.response_headers
        sent.SetInParent()
        for key, raw_value in headers:
            sent.headers.headers.append(base_pb2.HeaderValue(key=key, raw_value=raw_value))
        self.send(message)
        if self._response_mode == "NONE":
            return
        for number, piece in enumerate(pieces):
            message = pb.ProcessingRequest()
            message.response_body.body = piece
            self._response_end_sent = number == len(pieces) - 1 and not trailers
            message.response_body.end_of_stream = self._response_end_sent
            self._response_sent += piece
            self.send(message)
        if trailers:
            self.send(trailers_message("response_trailers"))
        if self._response_mode == DUPLEX and not self._observes and self.seen.refusal is None:
            assert self.seen.response_body == self._response_sent
            assert self.seen.response_ended is self._response_end_sent

    def send(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        assert self.seen.refusal is None, "Envoy has closed the stream"
        if self._first:
            self._first = False
            with_mode(message, self._mode, self._response_mode)
        message.observability_mode = self._observes
        for namespace, values in self._metadata.items():
            message.metadata_context.filter_metadata[namespace].update(values)
        kind = str(message.WhichOneof("request"))
        # What is answered was made from bytes on a wire.
        replies = self._send(pb.ProcessingRequest.FromString(message.SerializeToString()))
        if self._observes:
            assert replies == []
            return replies
        self._count(kind, replies)
        for reply in replies:
            self._take(reply)
        return replies

    def finish(self, sent: bytes, *, trailers: bool = False) -> Seen:
        """Assert what must hold at the end of a request."""
        seen = self.seen
        if self._observes or seen.refusal is not None:
            return seen
        if self._mode == DUPLEX:
            assert not self._headers_open, "the headers' reply never came"
            assert seen.body == sent
            ends_by_flag = not trailers and not self._no_body
            assert seen.ended is ends_by_flag, "end_of_stream once, unless something else ends the body"
        told = [reply for reply in seen.replies if reply.HasField("dynamic_metadata")]
        assert len(told) <= 1, "metadata goes out once"
        if DESTINATION_KEY in seen.set_headers:
            assert seen.set_headers[DESTINATION_KEY].decode() == seen.destination, "header and metadata agree"
        if self._headers_sent:
            ours = [(name, value) for name, value in seen.headers if name in REMOVED_REQUEST_HEADERS]
            assert dict(ours) == seen.set_headers, "of routing headers only ours go on"
            assert len(ours) == len(seen.set_headers), "each once"
        return seen

    def _count(self, kind: str, replies: list[pb.ProcessingResponse]) -> None:
        """Outside full duplex a message gets one reply of its kind; in full duplex its own side's only."""
        kinds = [str(reply.WhichOneof("response")) for reply in replies]
        if "immediate_response" in kinds:
            assert kinds == ["immediate_response"], "nothing beside an immediate response"
            assert kind.startswith("request"), "a response that has begun is not replaced"
            return
        side, _, part = kind.partition("_")
        mode = self._mode if side == "request" else self._response_mode
        if mode != DUPLEX or (side == "response" and part == "headers"):
            assert kinds == [kind]
        order = [f"{side}_headers", f"{side}_body", f"{side}_trailers"]
        assert kinds == sorted(kinds, key=order.index), "headers, body, trailers"
        assert all(order.index(told) <= order.index(kind) for told in kinds), "nothing is answered ahead"

    def _take(self, reply: pb.ProcessingResponse) -> None:
        seen = self.seen
        seen.replies.append(reply)
        kind = str(reply.WhichOneof("response"))
        if kind == "immediate_response":
            self._take_refusal(reply.immediate_response)
            return
        if kind.endswith(("headers", "body")):
            common: Any = getattr(reply, kind).response
            assert common.status == pb.CommonResponse.CONTINUE
            assert not common.HasField("trailers")
            self._take_mutation(kind, common)
            self._take_body(kind, common.body_mutation)
        else:
            assert not getattr(reply, kind).HasField("header_mutation")
        if kind == "request_headers":
            assert self._headers_open, "a second reply to the headers"
            self._headers_open = False
            assert (
                not self._within() or set(REMOVED_REQUEST_HEADERS) <= seen.removed | seen.set_headers.keys()
            )
        elif kind == "request_body" and self._mode == DUPLEX:
            assert not self._headers_open, "body before headers"
        elif kind == "request_trailers":
            assert self._trailers_sent
            assert not self._trailers_seen, "a second reply to the trailers"
            assert self._mode != DUPLEX or seen.body == self._body_sent, "the whole body goes before trailers"
            self._trailers_seen = True
        if reply.HasField("mode_override"):
            assert kind == "request_headers", "Envoy takes it there only"
            upgrade = ("upgrade" in dict(seen.headers)) or (":method", b"CONNECT") in seen.headers
            assert upgrade, "every other request keeps its mode"
            assert reply.mode_override.request_body_mode == MODES["NONE"]
        if reply.HasField("dynamic_metadata"):
            assert kind.startswith("request"), "too late to choose"
        for namespace, value in reply.dynamic_metadata.fields.items():
            fields = value.struct_value.fields
            seen.metadata[namespace] = {name: held.string_value for name, held in fields.items()}

    def _take_refusal(self, answer: pb.ImmediateResponse) -> None:
        assert self._may_refuse, "never answers in the engine's place"
        assert answer.status.code >= 200
        error = json.loads(answer.body)["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        told = {option.header.key: option.header.raw_value for option in answer.headers.set_headers}
        assert told["content-type"] == b"application/json"
        self.seen.refusal = answer

    def _take_mutation(self, kind: str, common: Any) -> None:
        mutation = common.header_mutation
        if kind.startswith("response"):
            assert mutation.ByteSize() == 0, "a response is never touched"
            assert not common.clear_route_cache
            return
        if kind == "request_body" and mutation.ByteSize():
            assert self._mode in BUFFERING, "Envoy drops it in the other modes"
            assert self._headers_sent, "Envoy drops it without headers"
        headers = self.seen.headers
        for name in mutation.remove_headers:
            assert _TOKEN.fullmatch(name), name
            headers = [(held, value) for held, value in headers if held != name]
        for option in mutation.set_headers:
            header = option.header
            assert not header.value, "raw_value only: both is an error in Envoy"
            assert option.append_action == base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
            assert _TOKEN.fullmatch(header.key)
            assert not header.key.startswith((":", "x-envoy")), "Envoy ignores it"
            assert header.key != "host"
            assert _VALUE.fullmatch(header.raw_value), header.raw_value
            headers = [(held, value) for held, value in headers if held != header.key]
            headers.append((header.key, header.raw_value))
            self.seen.set_headers[header.key] = header.raw_value
        if mutation.ByteSize() and self._headers_sent:
            self.seen.headers = headers
            assert self._within(), "too many or too large headers: Envoy fails the request"
        assert not set(mutation.remove_headers) & self.seen.set_headers.keys()
        self.seen.removed |= set(mutation.remove_headers)
        if common.clear_route_cache:
            assert mutation.set_headers, "only together with headers"
            self.seen.cleared_route_cache = True

    def _take_body(self, kind: str, mutation: pb.BodyMutation) -> None:
        which = mutation.WhichOneof("mutation")
        request = kind.startswith("request")
        mode = self._mode if request else self._response_mode
        if mode not in (DUPLEX, "GRPC") or kind.endswith("headers"):
            assert which is None, "a body is never changed"
            return
        assert which == "streamed_response"
        piece = mutation.streamed_response
        assert mode == "GRPC" or len(piece.body) < STREAM_PIECE_LIMIT
        seen = self.seen
        if request:
            assert not seen.ended, "nothing after end_of_stream"
            assert not self._trailers_seen, "body after trailers"
            seen.body += piece.body
            seen.ended = piece.end_of_stream
            assert self._body_sent.startswith(seen.body), "the bytes as they came"
            assert not seen.ended or (self._end_sent and seen.body == self._body_sent)
        else:
            assert not seen.response_ended
            seen.response_body += piece.body
            seen.response_ended = piece.end_of_stream
            assert self._response_sent.startswith(seen.response_body)
