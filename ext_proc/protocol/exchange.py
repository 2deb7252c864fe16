"""One HTTP exchange over Envoy's ext_proc messages: a state machine without I/O, clock or lock.

Messages go in, replies come out; what was decided stands in `Exchange.pick`. Nothing here waits, so the
stream's owner only writes what it is given. The choice itself is a function that is passed in.

States, always moving down:

    UNDECIDED   no pick yet; outside full duplex every message is answered as it comes
    HOLDING     full duplex only: the headers' reply and the body are kept back until the pick
    DECIDED     the pick is known, whatever it says; what follows is answered unchanged

Which message decides, by `protocol_config.request_body_mode`, which stands in the FIRST message only:

    any                     the headers, if nothing follows that could be read: with end_of_stream, for an
                            upgrade, and for bodies that are never JSON
    NONE                    the headers: no body comes
    BUFFERED                the body message: the whole body, even if trailers keep end_of_stream false
    BUFFERED_PARTIAL        the body message; without end_of_stream it is a leading part, read as cut off
    STREAMED, GRPC          the headers, because they leave before the body is read
    FULL_DUPLEX_STREAMED    the body message with end_of_stream, or that reaches a limit, or the trailers
    absent (old Envoys)     as BUFFERED when a body message ends the stream, otherwise as STREAMED

Headers that decide ask by what they tell (`RouteRequest.headers_only`); once they have left, Envoy chose.

Replies:

    - Outside full duplex each message gets exactly one reply of its own kind, and never a changed body.
    - In full duplex a body is answered by streamed pieces: headers, body, trailers in this order, the bytes
      as they came, end_of_stream where it came and once. Trailers end a body that has no end_of_stream.
    - Dynamic metadata goes out once, on the reply to the message that decided.
    - The headers' reply removes the routing headers that a client may send, on every path, faults included.
      Headers of the pick are set where Envoy applies them: in the headers' reply when the pick is known by
      then, and in the body's reply of the two buffered modes when Envoy sent us the headers. Only as many as
      Envoy's limits leave room for (`Room`).
    - The route cache is cleared on demand, and only with headers that are set.
    - A refusal is an immediate response. It ends the exchange: nothing is answered after it.
    - Messages of the response, should they come, are answered unchanged, whatever they hold.
    - With observability_mode there are no replies, and nothing is picked: it would not be obeyed.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from ext_proc.pick import Pick, Reason
from ext_proc.protocol.held import Held, HeldBytes
from ext_proc.protocol.modes import (
    BUFFERED,
    BUFFERED_PARTIAL,
    FULL_DUPLEX,
    GRPC,
    NONE,
    STREAMED,
    UNTOLD,
    nothing_to_read,
    upgrades,
)
from ext_proc.protocol.reply import (
    NO_ROOM,
    UNCHANGED,
    Room,
    body_reply,
    echo,
    echo_grpc,
    headers_reply,
    refusal_reply,
    room_of,
    trailers_reply,
)
from ext_proc.protocol.request import NO_MORE, Facts, Reads, RouteRequest, served_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb


class State(Enum):
    """Where an exchange stands; the module's docstring tells the rules."""

    UNDECIDED = "undecided"
    HOLDING = "holding"
    DECIDED = "decided"


class Exchange:
    """One HTTP request and its response, as Envoy tells them on one gRPC stream."""

    __slots__ = (
        "_bodiless", "_body_limit", "_clear_route_cache", "_facts", "_headers_held", "_observed",
        "_on_served", "_refused", "_request_ended", "_request_mode", "_response_mode", "_room", "_route",
        "_started", "_told", "held", "pick",
    )  # fmt: skip

    def __init__(
        self,
        route: Callable[[RouteRequest], Pick],
        *,
        body_limit: int,
        reads: Reads = NO_MORE,
        held: HeldBytes | None = None,
        clear_route_cache: bool = False,
        on_served: Callable[[str, bool], None] | None = None,
    ) -> None:
        """`route` chooses by `body_limit` leading bytes of a body; while `held` is over its limit, by fewer.

        `on_served` hears from a response's headers who served, where a gateway tells, and if it is an error.
        """
        self.pick: Pick | None = None
        self._route = route
        self._body_limit = body_limit
        self._clear_route_cache = clear_route_cache
        self._on_served = on_served
        self._request_mode = self._response_mode = UNTOLD
        self._facts = Facts(reads)
        self._room: Room | None = None  # None: Envoy has sent no headers, so it changes none.
        self._started = self._observed = self._told = self._refused = False
        self._headers_held = self._request_ended = self._bodiless = False
        self.held = Held(held or HeldBytes(body_limit))  # To be cleared when the stream ends.

    @property
    def state(self) -> State:
        """Where the exchange stands."""
        if self.pick is not None:
            return State.DECIDED
        return State.HOLDING if self._headers_held or self.held else State.UNDECIDED

    @property
    def lasts(self) -> bool:
        """Whether Envoy keeps the stream until the response has ended, so that its life is the request's.

        In full duplex, and where no body comes or is processed, Envoy 1.40 ends it with the last reply that
        it waits for, unless the response is processed too; of that it tells us the body's mode only. How long
        an upgrade lasts says nothing.
        """
        if upgrades(self._facts.told):
            return False
        if self._response_mode not in (NONE, UNTOLD):
            return True
        return self._request_mode not in (FULL_DUPLEX, NONE) and not self._bodiless

    @property
    def may_leave(self) -> bool:
        """Whether the stream may end with OK now, and no byte of a body is lost or doubled.

        Envoy 1.40 takes a body up in its midst only where it has kept it whole: what is here is lost, and a
        leading part, or pieces, are sent twice where the route has retries.
        """
        if not self._started or self._observed:
            return True
        safe = self._request_ended or self._request_mode in (NONE, BUFFERED)
        return safe and self._response_mode != FULL_DUPLEX

    @property
    def streamed(self) -> bool:
        """Whether Envoy sends the body in pieces after it has let the headers go."""
        return self._request_mode == STREAMED

    @property
    def request_id(self) -> str:
        """Envoy's id of the request, or the client's; empty when it does not come along."""
        return self._facts.request_id

    @property
    def traceparent(self) -> str:
        """The client's trace context, as it says; empty without one."""
        return self._facts.traceparent

    def on_message(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """Take one message; return the replies to write, in order. Raises only what it is given raises."""
        if self._observes(message):
            return []
        kind = message.WhichOneof("request") or ""
        body = self._keep(kind, message)
        if self.pick is None:
            self.pick = self._decision(kind, message, body)
        return self._settled(kind, self._answer(kind, message, body))

    def on_fault(
        self, message: pb.ProcessingRequest, pick: Pick | None = None
    ) -> list[pb.ProcessingResponse]:
        """Answer the message in which `on_message` raised: nothing lost, nothing changed.

        `pick` is what shall hold instead; by default the request goes unrouted.
        """
        kind = message.WhichOneof("request") or ""
        if not self._told:
            self.pick = pick or Pick.none(Reason.FAULT)
        body = message.request_body.body if kind == "request_body" else b""
        return self._settled(kind, self._answer(kind, message, body))

    def let_go(self, pick: Pick | None = None) -> list[pb.ProcessingResponse]:
        """Give back what full duplex has kept back, before the stream ends; `pick` as in `on_fault`."""
        if self.state is not State.HOLDING:
            return []
        chosen = self.pick = pick or self._ask(self.held.joined(), complete=False)
        if chosen.refusal is not None:
            return self._settled("request_body", [refusal_reply(chosen.refusal)])
        return self._settled("request_body", self._release(end_of_stream=False))

    def _settled(self, kind: str, replies: list[pb.ProcessingResponse]) -> list[pb.ProcessingResponse]:
        """Note what the replies have told and let go, once they are all built and nothing can fail."""
        if kind.startswith("request_"):
            if self.pick is None:
                self._headers_held = self._headers_held or (kind == "request_headers" and not replies)
            else:
                self._told, self._headers_held = True, False
                self._refused = self.pick.refusal is not None
                self.held.clear()
        return replies

    def _observes(self, message: pb.ProcessingRequest) -> bool:
        if not self._started:
            self._started = True
            if message.HasField("protocol_config"):
                told = message.protocol_config
                self._request_mode, self._response_mode = told.request_body_mode, told.response_body_mode
        self._observed = self._observed or message.observability_mode
        return self._observed

    def _keep(self, kind: str, message: pb.ProcessingRequest) -> bytes:
        """Take in what the message brings, the body first: whatever fails later must not lose a byte."""
        body: bytes = b""
        if kind == "request_body":
            body = message.request_body.body
            self._request_ended = message.request_body.end_of_stream or self._request_mode == BUFFERED_PARTIAL
            if self._request_mode == FULL_DUPLEX and self.pick is None:
                self.held.append(body)
        elif kind == "request_headers":
            sent = message.request_headers.headers
            self._bodiless = self._request_ended = message.request_headers.end_of_stream
            self._room = room_of(sent)
            self._facts.take_headers(sent)
        elif kind == "request_trailers":
            self._request_ended = True
        if self.pick is None:
            self._facts.take(message)
        return body

    def _decision(self, kind: str, message: pb.ProcessingRequest, body: bytes) -> Pick | None:
        """Decide if this message is the one that does; None: a later one will."""
        if kind == "request_headers":
            reason = nothing_to_read(
                self._request_mode, self._facts.told, ends=message.request_headers.end_of_stream
            )
            return None if reason is None else self._ask_without_body(reason)
        if kind == "request_body":
            return self._decision_at_body(body, ends=message.request_body.end_of_stream)
        if kind == "request_trailers":
            if self.held:
                return self._ask(self.held.joined(), complete=True)
            late = self._request_mode in (STREAMED, GRPC)
            return Pick.none(Reason.STREAMED) if late else self._ask_without_body(Reason.NO_BODY)
        return None

    def _decision_at_body(self, body: bytes, *, ends: bool) -> Pick | None:
        mode = self._request_mode
        if mode == FULL_DUPLEX:
            if not ends and not self.held.reached(self._body_limit):
                return None
            return self._ask(self.held.joined(), complete=ends)
        if mode == BUFFERED or (ends and mode not in (STREAMED, GRPC)):
            return self._ask(body, complete=True)
        if mode == BUFFERED_PARTIAL:
            return self._ask(body, complete=False)
        return Pick.none(Reason.STREAMED)

    def _ask(self, body: bytes, *, complete: bool) -> Pick:
        if len(body) > self._body_limit:
            body, complete = body[: self._body_limit], False
        return self._route(self._facts.question(body, complete=complete))

    def _ask_without_body(self, reason: Reason) -> Pick:
        """Ask for a pick by the headers alone; `reason` says why it is none, if they tell nothing."""
        pick = self._route(self._facts.question(b"", complete=False, headers_only=True))
        return replace(pick, reason=reason) if pick.reason is Reason.NO_PROMPT else pick

    def _answer(self, kind: str, message: pb.ProcessingRequest, body: bytes) -> list[pb.ProcessingResponse]:
        if self._refused:
            return []
        news = None if self._told else self.pick
        if news is not None and news.refusal is not None and kind.startswith("request_"):
            return [refusal_reply(news.refusal)]
        if kind == "request_headers":
            holds = self._request_mode == FULL_DUPLEX and self.pick is None
            return [] if holds else [self._headers_reply()]
        if kind == "request_body":
            return self._answer_body(message.request_body, body)
        if kind == "request_trailers":
            released = self._release(end_of_stream=False)
            return [*released, trailers_reply(None if released else self._news)]
        if kind == "response_headers":
            self._note_served(message)
        elif kind == "response_body" and self._response_mode == FULL_DUPLEX:
            sent = message.response_body
            return list(echo(kind, sent.body, end_of_stream=sent.end_of_stream))
        elif kind == "response_body" and self._response_mode == GRPC:
            return [echo_grpc(kind, message.response_body)]
        return [UNCHANGED[kind]] if kind in UNCHANGED else []

    def _answer_body(self, message: pb.HttpBody, body: bytes) -> list[pb.ProcessingResponse]:
        if self._request_mode == GRPC:
            return [echo_grpc("request_body", message)]
        if self._request_mode == FULL_DUPLEX:
            if self.pick is None:
                return []
            if self.held or self._headers_held:
                return self._release(end_of_stream=message.end_of_stream)
            return list(echo("request_body", body, end_of_stream=message.end_of_stream, pick=self._news))
        news = self._news
        if news is None:
            return [UNCHANGED["request_body"]]
        buffered = self._request_mode in (BUFFERED, BUFFERED_PARTIAL)
        room = self._room if buffered else None
        crowded = self._facts.crowded
        return [body_reply(news, room, clear_route_cache=self._clear_route_cache, crowded=crowded)]

    def _headers_reply(self) -> pb.ProcessingResponse:
        room = self._room or NO_ROOM
        return headers_reply(
            self._news,
            room,
            clear_route_cache=self._clear_route_cache,
            # Frames are nobody's business here, and Envoy 1.40 hangs while it buffers them.
            no_body=self._request_mode != NONE and upgrades(self._facts.told),
        )

    def _release(self, *, end_of_stream: bool) -> list[pb.ProcessingResponse]:
        """Let go what full duplex has kept back: the headers' reply with the pick, then the body."""
        replies: list[pb.ProcessingResponse] = []
        if self._headers_held:
            replies.append(self._headers_reply())
        if self.held:
            news = None if replies else self._news
            replies += echo("request_body", self.held.joined(), end_of_stream=end_of_stream, pick=news)
        return replies

    def _note_served(self, message: pb.ProcessingRequest) -> None:
        tell, self._on_served = self._on_served, None
        if tell is not None:
            address, refused = served_of(message.metadata_context, message.response_headers.headers)
            if address or refused:
                tell(address, refused)

    @property
    def _news(self) -> Pick | None:
        """The pick as long as it has not been told, then None."""
        return None if self._told else self.pick
