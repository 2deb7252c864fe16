"""One request's stream without its transport: what the exchange says, counted, traced and held to duty.

An exception in our own work never leaves a stream: `ExchangeStream.on_message` is the edge that catches it,
counts it and has the message answered unrouted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ext_proc import spans
from ext_proc.idempotency.guard import DUPLICATE
from ext_proc.pick import Pick, Reason
from ext_proc.protocol.exchange import Exchange
from ext_proc.protocol.reply import refusal_reply
from ext_proc.protocol.request import Reads
from ext_proc.server_metrics import Served

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from ext_proc.director.director import Choice
    from ext_proc.director.traffic import Token
    from ext_proc.idempotency.store import Claim
    from ext_proc.protocol.request import RouteRequest
    from ext_proc.server import ExtProcService
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
    from fleet.settings import Settings
    from fleet.settings.telemetry import TelemetrySettings


class Rules(NamedTuple):
    """What the settings say, as it is asked for with each request."""

    reads: Reads
    body_bytes: int
    streams: int
    clear_route_cache: bool
    name_always: bool
    fallbacks: int
    telemetry: TelemetrySettings

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        """Look it up."""
        sessions = [listener.session_header for listener in settings.listeners]
        keys = settings.ext_proc.idempotency.headers
        return cls(
            Reads([*sessions, *settings.ext_proc.pick.headers, *keys]),
            settings.limits.body_bytes,
            settings.limits.ext_proc_streams,
            settings.ext_proc.clear_route_cache,
            settings.ext_proc.name_always,
            settings.ext_proc.pick.fallbacks,
            settings.telemetry,
        )


class ExchangeStream:
    """One request's stream, without its transport: messages in, replies out, `close` at whatever end."""

    __slots__ = (
        "_asked", "_choice", "_claim", "_exchange", "_in_duty", "_pick_seconds", "_service", "_span",
        "_token", "begun", "waits",
    )  # fmt: skip

    def __init__(self, service: ExtProcService) -> None:
        self._service = service
        self._token: Token | None = None
        self._span: Span | None = None
        self._pick_seconds = 0.0
        self._asked: RouteRequest | None = None
        self._in_duty = False
        self._claim: Claim | None = None
        """To be the one request of its kind in flight, where duplicates are refused."""
        self._choice: Choice | None = None
        """A pick that is final once the other workers have confirmed the claim."""
        self.waits = False
        """Whether the transport waits for a message: everything is said then."""
        self.begun = False
        """Whether a message has come; until then one is on its way, perhaps with pieces of a body behind."""
        rules = service.rules
        admitted = service.admit()
        self._exchange = Exchange(
            self._route if admitted else self._over_limit,
            body_limit=rules.body_bytes if admitted else 0,
            reads=rules.reads,
            held=service.held,
            clear_route_cache=rules.clear_route_cache,
            on_served=self._served,
        )

    def on_message(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """Answer one message; never raises for a fault of our own."""
        self.begun = True
        undecided = self._exchange.pick is None
        replies: list[pb.ProcessingResponse] | None = None
        try:
            replies = self._exchange.on_message(message)
            if undecided and (pick := self._exchange.pick) is not None and self._choice is None:
                self._decided(pick)
        except Exception as error:  # noqa: BLE001 - the one edge: no fault of ours may fail a request
            self._service.faults.note(error)
        if replies is not None:
            # Also when only the counting failed: what these replies let go could not be said again.
            return replies
        self._choice = None
        pick = self._instead()
        replies = self._exchange.on_fault(message, pick)
        if undecided:
            self._service.metrics.picks[pick.reason].inc()
            self._tell(pick)
        return replies

    async def replies(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """As `on_message`; where workers share what is in flight, the others are asked before it is said.

        Until they have answered, nothing is counted or noted: the pick is not final.
        """
        replies = self.on_message(message)
        choice, claim = self._choice, self._claim
        if choice is None or claim is None:
            return replies
        confirmed = await self._service.keys.confirm(claim)
        self._choice = None
        try:
            if not confirmed:
                self._decided(Pick.refuse(Reason.DUPLICATE, DUPLICATE))
            elif (pick := self._exchange.pick) is not None:
                self._service.router.book(choice)
                self._decided(pick)
        except Exception as error:  # noqa: BLE001 - as in on_message
            self._service.faults.note(error)
        return replies if confirmed else [refusal_reply(DUPLICATE)]

    @property
    def may_leave(self) -> bool:
        """Whether the stream may end now without harm to the request."""
        return self._exchange.may_leave

    def let_go(self) -> list[pb.ProcessingResponse]:
        """Say what must be said before the stream ends in the midst of a request."""
        undecided = self._exchange.pick is None
        replies: list[pb.ProcessingResponse] | None = None
        try:
            replies = self._exchange.let_go()
            if undecided and (pick := self._exchange.pick) is not None:
                self._decided(pick)
        except Exception as error:  # noqa: BLE001 - as in on_message
            self._service.faults.note(error)
        return self._exchange.let_go(self._instead()) if replies is None else replies

    def close(self) -> None:
        """End it: whatever was counted as in flight is no more."""
        self._service.leave()
        self._exchange.held.clear()
        self._finish()

    def _finish(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            self._service.router.finished(token)
        claim, self._claim = self._claim, None
        if claim is not None:
            self._service.keys.end(claim)

    def _route(self, request: RouteRequest) -> Pick:
        service = self._service
        started_at = service.clock()
        # Without its body, which the stream would keep until the response has ended.
        self._asked = request._replace(body=b"")
        # Begun before the reply is made, because it carries the span's name on to whoever sees the response.
        span = self._span = service.spans.begin(request.traceparent, service.rules.telemetry)
        if span is not None:
            request = request._replace(explain=True)
        try:
            mark = service.keys.mark(request)
            if mark is not None and service.keys.refuses(mark):
                self._claim = service.keys.begin(mark)
                if self._claim is None:
                    return Pick.refuse(Reason.DUPLICATE, DUPLICATE)
            if self._claim is None or not service.keys.asks_others:
                pick = service.router.route(request)
            else:
                self._choice = service.router.choose(request)
                pick = self._choice.pick
            if mark is not None:
                pick = replace(pick, told=tuple(mark.told.items()))
            if span is not None:
                pick = replace(pick, trace=spans.traceparent_of(span))
            if request.subset is not None or service.rules.name_always:
                pick = self._fulfilled(pick, request)
            return pick
        finally:
            if not request.headers_only:
                self._pick_seconds = service.clock() - started_at

    def _over_limit(self, request: RouteRequest) -> Pick:
        pick = Pick.none(Reason.OVER_LIMIT)
        if request.subset is not None or self._service.rules.name_always:
            pick = self._fulfilled(pick, request)
        return pick

    def _fulfilled(self, pick: Pick, request: RouteRequest) -> Pick:
        self._in_duty = True
        pick = self._service.duty.fulfil(pick, request, self._service.rules.fallbacks)
        self._in_duty = False
        return pick

    def _instead(self) -> Pick:
        """What holds after a fault of ours: no pick, unless the gateway needs one all the same."""
        pick, request = Pick.none(Reason.FAULT), self._asked
        if request is None or self._in_duty:
            return pick
        if request.subset is None and not self._service.rules.name_always:
            return pick
        return self._fulfilled(pick, request)

    def _served(self, address: str, refused: bool) -> None:  # noqa: FBT001 - as the exchange tells it
        """Hear of the response, from a gateway that tells."""
        pick = self._exchange.pick
        if address:
            self._service.metrics.served[Served.of(address, pick)].inc()
            self._service.on_served(address)
        self._service.router.answered(pick, address, refused=refused)

    def _decided(self, pick: Pick) -> None:
        # A stream that ends early would tell of an idle, fast endpoint; unknown is better than wrong.
        if pick.endpoints and self._exchange.lasts:
            self._token = self._service.router.started(pick)
        service = self._service
        if self._asked is None:
            # Decided by the exchange alone, which asks nobody.
            self._span = service.spans.begin(self._exchange.traceparent, service.rules.telemetry)
        service.note_pick(pick, self._pick_seconds, streamed=self._exchange.streamed)
        self._tell(pick)

    def _tell(self, pick: Pick) -> None:
        """Keep the decision to be explained, and end its span."""
        request_id = self._exchange.request_id
        cluster = "" if self._asked is None else self._asked.cluster
        self._service.decisions.note(pick, self._pick_seconds, request_id, cluster)
        span, self._span = self._span, None
        if span is not None:
            spans.end(span, pick, self._pick_seconds, request_id)
