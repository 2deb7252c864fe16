"""One HTTP exchange over Envoy's ext_proc messages: a state machine without I/O, clock, lock or callback.

`receive` takes a message and returns the replies to write, or `NeedsPick`. Then the caller picks, at once or
later, and `resume` takes the result and returns the replies. The exchange never calls its caller, so nothing
is booked before the result is final.

States:

    START      no message yet
    OPEN       no result yet; messages are answered as they arrive
    BUFFERING  full duplex only: the headers' reply and the body wait for the result
    PICKING    `NeedsPick` is returned; `resume` answers its message
    PICKED     Envoy has the result; later messages are answered unchanged
    REFUSED    the client has an answer in the engines' place; no message follows
    OBSERVING  observability mode: no replies and no pick, because Envoy would ignore both

`ext_proc.protocol.modes` has the transitions from OPEN and BUFFERING, by body mode. Headers that decide give
a request without a body (`HttpRequest.no_body`); once they have left, Envoy has chosen (`HttpRequest.late`).

Replies:

    - Outside full duplex each message gets exactly one reply of its own kind, and never a changed body.
    - In full duplex a body is answered by streamed pieces: headers, body, trailers in this order, the bytes
      as they came, end_of_stream where it came and once. Trailers end a body that has no end_of_stream.
    - Dynamic metadata goes out once, on the reply to the message that decided.
    - The headers' reply removes the routing headers that a client may send, on every path, faults included.
      Headers of the result are set where Envoy applies them: in the headers' reply when the result is known
      by then, and in the body's reply of the two buffered modes when Envoy sent us the headers. They are as
      many as Envoy's limits leave room for (`HeaderBudget`).
    - The route cache is cleared on demand: with headers that are set, or for another pool.
    - A refusal is an immediate response. It ends the exchange: nothing is answered after it.
    - Messages of the response, should they come, are answered unchanged, whatever they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ext_proc.pick.result import Reason
from ext_proc.protocol.attributes import CROWDED, NO_MORE, AttributeMap, HttpRequest, served_of, subset_of
from ext_proc.protocol.body_buffer import BodyBuffer, BufferedBytes
from ext_proc.protocol.modes import (
    BUFFERED,
    BUFFERED_PARTIAL,
    FULL_DUPLEX,
    GRPC,
    NONE,
    STREAMED,
    TRANSITIONS,
    UNDECLARED,
    Event,
    State,
    Step,
    Upload,
    headers_event,
    no_body_reason,
    upgrades,
)
from ext_proc.protocol.reply import (
    NO_BUDGET,
    NOTHING,
    UNCHANGED,
    HeaderBudget,
    body_reply,
    budget_of,
    echo,
    echo_grpc,
    headers_reply,
    refusal_reply,
    trailers_reply,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ext_proc.pick.result import PickResult
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb


_DECIDED: Final = (State.PICKED, State.REFUSED)


class NeedsPick(NamedTuple):
    """The request for which `Exchange.resume` needs a result."""

    request: HttpRequest


class Exchange:
    """One HTTP request and its response, as Envoy sends them on one gRPC stream."""

    __slots__ = (
        "_attribute_map", "_body_limit", "_budget", "_buffer", "_buffered", "_clear_route_cache", "_ends",
        "_kind", "_message", "_replaced", "_request_mode", "_reroute", "_response_mode", "_subset",
        "_upload", "_values", "result", "served", "state",
    )  # fmt: skip

    def __init__(
        self,
        *,
        body_limit: int,
        attribute_map: AttributeMap = NO_MORE,
        buffered: BufferedBytes | None = None,
        clear_route_cache: bool = False,
    ) -> None:
        """Picks read `body_limit` leading bytes of a body, and fewer while `buffered` is over its limit."""
        self.state = State.START
        self.result: PickResult | None = None
        """The result that Envoy has; None before."""
        self.served: tuple[str, bool] | None = None
        """From the response's headers: the endpoint that served, "" without a gateway's report, and whether
        the status is an error. None before the headers."""
        self._body_limit = body_limit
        self._clear_route_cache = clear_route_cache
        self._attribute_map = attribute_map
        self._values: dict[str, str] = {}  # Headers and attributes by name.
        self._subset: tuple[str, ...] | None = None
        self._buffered = buffered
        self._buffer: BodyBuffer | None = None  # Of full duplex, from the first piece on.
        self._budget: HeaderBudget | None = None  # None: Envoy has sent no headers, so it changes none.
        self._request_mode = self._response_mode = UNDECLARED
        self._upload = Upload.OPEN
        # The message without an answer so far.
        self._message: pb.ProcessingRequest | None = None
        self._reroute = False
        self._replaced: bytes | None = None
        self._kind = ""
        self._ends = False

    @property
    def lasts(self) -> bool:
        """Whether Envoy keeps the stream until the response has ended, so that it measures the request.

        In full duplex, and without a processed body, Envoy 1.40 ends the stream with the last reply that it
        needs, unless it processes the response too, which only the response's body mode shows. The duration
        of an upgrade means nothing.
        """
        if upgrades(self._values):
            return False
        if self._response_mode not in (NONE, UNDECLARED):
            return True
        return self._request_mode not in (FULL_DUPLEX, NONE) and self._upload is not Upload.BODILESS

    @property
    def may_leave(self) -> bool:
        """Whether the stream may end with OK now without loss or repetition of a body's bytes.

        Envoy 1.40 continues in the middle of a body only if it has buffered all of it. Otherwise the bytes in
        this process are lost, and with retries a leading part, or pieces, are sent twice.
        """
        if self.state in (State.START, State.OBSERVING):
            return True
        safe = self._upload is not Upload.OPEN or self._request_mode in (NONE, BUFFERED)
        return safe and self._response_mode != FULL_DUPLEX

    @property
    def streamed(self) -> bool:
        """Whether Envoy sends the body in pieces after it has sent the headers on."""
        return self._request_mode == STREAMED

    def receive(self, message: pb.ProcessingRequest) -> list[bytes] | NeedsPick:
        """Take one message; return the replies to write, in order, or the request to pick for.

        After an exception of any kind `resume` still answers the message, and nothing is lost.
        """
        self._message = message
        event = self._receive(message)
        if isinstance(event, list):
            self._message = None  # A stream lasts long, and the message may have a large body.
        return event

    def leave_early(self) -> list[bytes] | NeedsPick:
        """Return the buffered body before the stream ends, after a pick by this part."""
        if self.state is not State.BUFFERING:
            return []
        self._message, self._kind, self._ends = None, "request_body", False
        self.state = State.PICKING
        return NeedsPick(self._request(Step.BY_PART))

    @property
    def whole_body(self) -> bytes | None:
        """The whole body, where the reply may replace it; None elsewhere."""
        if self._request_mode != BUFFERED or self._kind != "request_body" or self._message is None:
            return None
        return self._message.request_body.body

    def resume(
        self,
        result: PickResult,
        metadata: Mapping[str, str] = NOTHING,
        *,
        reroute: bool = False,
        body: bytes | None = None,
    ) -> list[bytes]:
        """Answer the message that needs a result; once Envoy has one, `result` changes nothing.

        It also answers the message in which `receive` failed. `metadata` goes to Envoy as well, by key of our
        namespace. Where `whole_body` is a body, `body` may replace it, and `reroute` lets Envoy choose the
        route again.
        """
        self._reroute, self._replaced = reroute, body
        if self.state is State.OBSERVING or not self._kind.startswith("request_"):
            return [] if self._message is None else self._answer_response(self._message)
        if self.state in _DECIDED:
            return self._answer(None)
        if result.refusal is not None:
            replies = [refusal_reply(result.refusal)]
        else:
            replies = self._answer(result, metadata)
        # All replies are built, so nothing can fail from here on.
        self.result = result
        self.state = State.PICKED if result.refusal is None else State.REFUSED
        self._message = self._replaced = None
        self.close()
        return replies

    def close(self) -> None:
        """Free the buffer."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            buffer.clear()

    def _receive(self, message: pb.ProcessingRequest) -> list[bytes] | NeedsPick:
        self._kind = kind = message.WhichOneof("request") or ""
        if self.state is State.START:
            self.state = State.OPEN
            if message.HasField("protocol_config"):
                config = message.protocol_config
                self._request_mode, self._response_mode = config.request_body_mode, config.response_body_mode
        if message.observability_mode or self.state is State.OBSERVING:
            self.state = State.OBSERVING
            return []
        if not kind.startswith("request_"):
            return self._answer_response(message)
        event = self._take(message)
        if self.state in _DECIDED:
            return self._answer(None)
        self._attribute_map.read_attributes(message, self._values)
        if message.HasField("metadata_context"):
            self._subset = subset_of(message.metadata_context)
        if event is Event.HEADERS:
            event = headers_event(self._values, ends=self._ends)
        transitions = TRANSITIONS.get(self._request_mode) or TRANSITIONS[UNDECLARED]
        step = transitions[event]
        if step is Step.BUFFER:
            self.state = State.BUFFERING
            return []
        if step is Step.WAIT:
            return [self._headers_reply(None)]
        self.state = State.PICKING
        return NeedsPick(self._request(step))

    def _take(self, message: pb.ProcessingRequest) -> Event:
        """Store the parts of the message, the body first: a later failure must not lose a byte."""
        kind = self._kind
        if kind == "request_body":
            sent = message.request_body
            self._ends = sent.end_of_stream
            if self._ends or self._request_mode == BUFFERED_PARTIAL:
                self._upload = Upload.ENDED
            if self._request_mode == FULL_DUPLEX and self.state not in _DECIDED:
                if self._buffer is None:
                    self._buffer = BodyBuffer(self._buffered or BufferedBytes(self._body_limit))
                self._buffer.append(sent.body)
                if not self._ends and self._buffer.reached(self._body_limit):
                    return Event.FULL_BODY
            return Event.LAST_BODY if self._ends else Event.BODY
        if kind == "request_headers":
            self._ends = message.request_headers.end_of_stream
            if self._ends:
                self._upload = Upload.BODILESS
            headers = message.request_headers.headers
            self._budget = budget_of(headers)
            self._attribute_map.read_headers(headers, self._values)
            return Event.HEADERS
        self._upload, self._ends = Upload.ENDED, False
        return Event.TRAILERS if self._buffer is None else Event.BODY_TRAILERS

    def without_body(self, reason: Reason, *, late: bool = False) -> HttpRequest:
        """Return the request without its body, for this reason."""
        return HttpRequest(b"", False, self._values, self._subset, reason, late)

    def _request(self, step: Step) -> HttpRequest:
        if step is Step.LATE:
            return self.without_body(Reason.STREAMED, late=True)
        if step is Step.BY_HEADERS:
            ends = self._ends or self._kind == "request_trailers"
            return self.without_body(no_body_reason(self._request_mode, self._values, ends=ends))
        if self._request_mode == FULL_DUPLEX or self._message is None:
            body = b"" if self._buffer is None else self._buffer.joined()
        else:
            body = self._message.request_body.body
        complete = step is Step.BY_BODY
        if len(body) > self._body_limit:
            body, complete = body[: self._body_limit], False
        return HttpRequest(body, complete, self._values, self._subset)

    def _answer(self, result: PickResult | None, metadata: Mapping[str, str] = NOTHING) -> list[bytes]:
        """Answer a message of the request, with the result if Envoy does not have it yet."""
        if self.state is State.REFUSED:
            return []
        if self._kind == "request_headers":
            return [self._headers_reply(result, metadata)]
        if self._request_mode == FULL_DUPLEX:
            return self._answer_duplex(result, metadata)
        if self._kind == "request_trailers":
            return [trailers_reply(result, metadata)]
        if self._request_mode == GRPC and self._message is not None:
            return [echo_grpc("request_body", self._message.request_body)]
        if result is None:
            return [UNCHANGED["request_body"]]
        buffered = self._request_mode in (BUFFERED, BUFFERED_PARTIAL)
        return [
            body_reply(
                result,
                self._budget if buffered else None,
                metadata,
                clear_route_cache=self._clear_route_cache,
                crowded=bool(self._values.get(CROWDED)),
                reroute=self._reroute,
                body=self._replaced,
            )
        ]

    def _answer_duplex(self, result: PickResult | None, metadata: Mapping[str, str]) -> list[bytes]:
        """Answer a body or trailers in full duplex, after the headers' reply and the buffer."""
        replies: list[bytes] = []
        if result is not None:
            if self._budget is not None:
                replies.append(self._headers_reply(result, metadata))
                result = None
            if self._buffer is not None:
                body = self._buffer.joined()
                replies += echo("request_body", body, self._ends, result, metadata)
                result = None
        elif self._kind == "request_body" and self._message is not None:
            replies += echo("request_body", self._message.request_body.body, self._ends)
        if self._kind == "request_trailers":
            replies.append(trailers_reply(result, metadata))
        return replies

    def _headers_reply(self, result: PickResult | None, metadata: Mapping[str, str] = NOTHING) -> bytes:
        return headers_reply(
            result,
            self._budget or NO_BUDGET,
            metadata,
            clear_route_cache=self._clear_route_cache,
            reroute=self._reroute,
            # This service reads no frames, and Envoy 1.40 hangs while it buffers them.
            no_body=self._request_mode != NONE and upgrades(self._values),
        )

    def _answer_response(self, message: pb.ProcessingRequest) -> list[bytes]:
        """Answer a message of the response; one of an unknown kind gets no answer."""
        kind = self._kind
        if self.state is State.REFUSED or self.state is State.OBSERVING:
            return []
        if kind == "response_headers":
            if self.served is None:
                self.served = "", False  # Once, even if reading it fails: the message is answered again then.
                self.served = served_of(message.metadata_context, message.response_headers.headers)
        elif kind == "response_body" and self._response_mode == FULL_DUPLEX:
            sent = message.response_body
            return list(echo(kind, sent.body, sent.end_of_stream))
        elif kind == "response_body" and self._response_mode == GRPC:
            return [echo_grpc(kind, message.response_body)]
        return [UNCHANGED[kind]] if kind in UNCHANGED else []
