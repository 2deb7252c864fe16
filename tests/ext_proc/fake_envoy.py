"""An Envoy without a socket: it sends what its mode demands and asserts the rules on each reply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from fleet.names import EXT_PROC_FILTER, REMOVED_REQUEST_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MODES = dict(processing_mode_pb2.ProcessingMode.BodySendMode.items())
DUPLEX = "FULL_DUPLEX_STREAMED"
STREAM_PIECE_LIMIT = 64 * 1024


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


def with_mode(message: pb.ProcessingRequest, request: str, response: str = "NONE") -> pb.ProcessingRequest:
    if request == "UNTOLD":
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
    body: bytes = b""
    ended: bool = False
    set_headers: dict[str, bytes] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def destination(self) -> str | None:
        return self.metadata.get("envoy.lb", {}).get("x-gateway-destination-endpoint")

    @property
    def reason(self) -> str | None:
        return self.metadata.get("warmroute", {}).get("reason")


class FakeEnvoy:
    """Plays one request. `send` is what answers: an exchange's `on_message`, or a stream's."""

    def __init__(
        self, send: Callable[[pb.ProcessingRequest], list[pb.ProcessingResponse]], mode: str
    ) -> None:
        self._send = send
        self._mode = mode
        self._first = True
        self._headers_open = self._no_body = False
        self._trailers_seen = False
        self.seen = Seen()

    def headers(
        self, headers: Sequence[tuple[str, bytes]] = (), *, end_of_stream: bool = False
    ) -> list[pb.ProcessingResponse]:
        self._headers_open = True
        self._no_body = end_of_stream
        return self.send(headers_message(headers, end_of_stream=end_of_stream))

    def body(self, body: bytes, *, end_of_stream: bool) -> list[pb.ProcessingResponse]:
        return self.send(body_message(body, end_of_stream=end_of_stream))

    def trailers(self) -> list[pb.ProcessingResponse]:
        return self.send(trailers_message())

    def send(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        if self._first:
            self._first = False
            if self._mode != "UNTOLD":
                with_mode(message, self._mode)
        replies = self._send(message)
        kind = message.WhichOneof("request")
        if self._mode != DUPLEX or kind.startswith("response"):
            assert [reply.WhichOneof("response") for reply in replies] == [kind]
        for reply in replies:
            self._take(reply)
        return replies

    def finish(self, sent: bytes, *, trailers: bool = False) -> Seen:
        """Assert what must hold at the end of a request."""
        if self._mode == DUPLEX:
            assert not self._headers_open, "the headers' reply never came"
            assert self.seen.body == sent
            ends_by_flag = not trailers and not self._no_body
            assert self.seen.ended is ends_by_flag, "end_of_stream once, unless something else ends the body"
        told = [reply for reply in self.seen.replies if reply.HasField("dynamic_metadata")]
        assert len(told) <= 1, "metadata goes out once"
        return self.seen

    def _take(self, reply: pb.ProcessingResponse) -> None:
        seen = self.seen
        seen.replies.append(reply)
        kind = reply.WhichOneof("response")
        assert kind != "immediate_response", "never answers in the engine's place"
        if kind in ("request_headers", "request_body"):
            common: Any = getattr(reply, kind).response
            assert common.status == pb.CommonResponse.CONTINUE
            assert not common.clear_route_cache
            self._take_mutation(common.header_mutation)
            self._take_body(kind, common.body_mutation)
        if kind == "request_headers":
            assert self._headers_open, "a second reply to the headers"
            self._headers_open = False
            assert set(REMOVED_REQUEST_HEADERS) <= seen.removed | seen.set_headers.keys()
        elif kind == "request_body" and self._mode == DUPLEX:
            assert not self._headers_open, "body before headers"
        elif kind == "request_trailers":
            self._trailers_seen = True
        for namespace, value in reply.dynamic_metadata.fields.items():
            fields = value.struct_value.fields
            seen.metadata[namespace] = {name: held.string_value for name, held in fields.items()}

    def _take_mutation(self, mutation: pb.HeaderMutation) -> None:
        for option in mutation.set_headers:
            assert not option.header.value, "raw_value only: both is an error in Envoy"
            assert option.append_action == base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
            assert b"\r" not in option.header.raw_value
            assert b"\n" not in option.header.raw_value
            self.seen.set_headers[option.header.key] = option.header.raw_value
        assert not set(mutation.remove_headers) & self.seen.set_headers.keys()
        self.seen.removed |= set(mutation.remove_headers)

    def _take_body(self, kind: str, mutation: pb.BodyMutation) -> None:
        which = mutation.WhichOneof("mutation")
        if self._mode != DUPLEX or kind == "request_headers":
            assert which is None, "a body is never changed"
            return
        assert which == "streamed_response"
        piece = mutation.streamed_response
        assert len(piece.body) < STREAM_PIECE_LIMIT
        assert not self.seen.ended, "nothing after end_of_stream"
        assert not self._trailers_seen, "body after trailers"
        self.seen.body += piece.body
        self.seen.ended = piece.end_of_stream
