"""The gRPC service: reads Envoy's messages, lets the exchange answer, and counts what happened.

`ExchangeStream` is all of it but the transport; `ExtProcService` carries it over grpc.aio. An exception in
our own work never leaves a stream: `ExchangeStream.on_message` is the one edge that catches it, counts it
and has the message answered unrouted.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc

from ext_proc import spans
from ext_proc.decisions import PickDecisions
from ext_proc.exchange import Exchange
from ext_proc.pick import Pick, Reason
from ext_proc.request import Reads
from ext_proc.server_duty import Duty
from ext_proc.server_metrics import Faults, Metrics, Served
from ext_proc.spans import PickSpans

if TYPE_CHECKING:
    from collections.abc import Callable

    from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from ext_proc.request import RouteRequest
    from ext_proc.routing import Router
    from ext_proc.server_duty import ViewSource
    from ext_proc.traffic import Token
    from fleet.settings import Settings
    from fleet.settings.telemetry import TelemetrySettings

log = logging.getLogger(__name__)

_EOF: Final[Any] = grpc.aio.EOF

HEALTH_SERVICES: Final = (
    "envoy.service.ext_proc.v3.ExternalProcessor",
    "inference-extension",
    "readiness",
)
"""Names under which gateways and their charts ask for a picker's health, beside the empty one."""
LIVENESS_SERVICE: Final = "liveness"
"""The name under which they ask whether the process answers at all."""


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
        return cls(
            Reads(listener.session_header for listener in settings.listeners),
            settings.limits.body_bytes,
            settings.limits.ext_proc_streams,
            settings.ext_proc.clear_route_cache,
            settings.ext_proc.name_always,
            settings.ext_proc.pick.fallbacks,
            settings.telemetry,
        )


class ExchangeStream:
    """One request's stream, without its transport: messages in, replies out, `close` at whatever end."""

    __slots__ = ("_asked", "_exchange", "_in_duty", "_pick_seconds", "_service", "_span", "_token")

    def __init__(self, service: ExtProcService) -> None:
        self._service = service
        self._token: Token | None = None
        self._span: Span | None = None
        self._pick_seconds = 0.0
        self._asked: RouteRequest | None = None
        self._in_duty = False
        rules = service.rules
        admitted = service.admit()
        self._exchange = Exchange(
            self._route if admitted else self._over_limit,
            body_limit=rules.body_bytes if admitted else 0,
            reads=rules.reads,
            clear_route_cache=rules.clear_route_cache,
            on_served=self._served,
        )

    def on_message(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """Answer one message; never raises for a fault of our own."""
        undecided = self._exchange.pick is None
        replies: list[pb.ProcessingResponse] | None = None
        try:
            replies = self._exchange.on_message(message)
            if undecided and (pick := self._exchange.pick) is not None:
                self._decided(pick)
        except Exception as error:  # noqa: BLE001 - the one edge: no fault of ours may fail a request
            self._service.faults.note(error)
        if replies is not None:
            # Also when only the counting failed: what these replies let go could not be said again.
            return replies
        pick = self._instead()
        replies = self._exchange.on_fault(message, pick)
        if undecided:
            self._service.metrics.picks[pick.reason].inc()
            self._tell(pick)
        return replies

    def close(self) -> None:
        """End it: whatever was counted as in flight is no more."""
        self._service.leave()
        token, self._token = self._token, None
        if token is not None:
            self._service.router.finished(token)

    def _route(self, request: RouteRequest) -> Pick:
        service = self._service
        started_at = service.clock()
        self._asked = request
        # Begun before the reply is made, because it carries the span's name on to whoever sees the response.
        span = self._span = service.spans.begin(request.traceparent, service.rules.telemetry)
        if span is not None:
            request = request._replace(explain=True)
        try:
            pick = service.router.route(request)
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

    def _served(self, address: str) -> None:
        """Hear who served, from a gateway that tells."""
        self._service.metrics.served[Served.of(address, self._exchange.pick)].inc()
        self._service.on_served(address)

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


class ExtProcService(pb_grpc.ExternalProcessorServicer):  # type: ignore[misc]
    """`envoy.service.ext_proc.v3.ExternalProcessor` over grpc.aio."""

    def __init__(
        self,
        router: Router,
        tracer: Tracer,
        settings: Settings,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.perf_counter,
        draw: Callable[[], float] = random.random,
        wall: Callable[[], float] = time.time,
        source: ViewSource | None = None,
        on_served: Callable[[str], None] = lambda _address: None,
    ) -> None:
        """`settings` are those to start with; `reconfigure` takes over others.

        `draw` is uniform in [0, 1), `wall` tells Unix seconds. `source` is the fleet's view, for gateways
        that must be told an endpoint even where nothing is picked. `on_served` hears the address that served
        a request, where a gateway tells it.
        """
        self.router = router
        self.clock = clock
        self.metrics = Metrics.on(registry)
        self.faults = Faults(self.metrics.faults, clock)
        self.spans = PickSpans(tracer, draw, router.sampling_floor)
        self.decisions = PickDecisions(settings.limits.decisions, wall)
        self.rules = Rules.of(settings)
        self.duty = Duty(source or _Unknown(), draw)
        self.on_served = on_served
        self._streams = 0
        self.metrics.streams.set_function(lambda: self._streams)
        self._closing = False
        self._warned_streamed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return self._streams

    def register(self, server: grpc.aio.Server) -> None:
        """Offer the service on a server."""
        pb_grpc.add_ExternalProcessorServicer_to_server(self, server)

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings."""
        self.decisions.resize(settings.limits.decisions)
        self.rules = Rules.of(settings)

    def admit(self) -> bool:
        """Count a stream in; False when it is over the limit and goes unrouted."""
        self._streams += 1
        return self._streams <= self.rules.streams

    def leave(self) -> None:
        """Count a stream out."""
        self._streams -= 1

    async def Process(  # noqa: N802 - gRPC's name
        self, _messages: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """One HTTP request: from its first message until its response ends or either side leaves."""
        task = asyncio.current_task()
        assert task is not None
        stream = ExchangeStream(self)
        self._tasks.add(task)
        try:
            while (message := await context.read()) is not _EOF:
                for reply in stream.on_message(message):
                    await context.write(reply)
        except asyncio.CancelledError:
            # Our own close: ending with OK tells Envoy to go on without us, an error would fail the request.
            if not self._closing or context.cancelled():
                raise
        finally:
            self._tasks.discard(task)
            stream.close()

    async def close(self) -> None:
        """End every open stream with OK, so that requests in flight go on without us."""
        self._closing = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def note_pick(self, pick: Pick, seconds: float, *, streamed: bool = False) -> None:
        """Count a decision; `streamed` is whether the body came too late for it."""
        self.metrics.picks[pick.reason].inc()
        if seconds:
            self.metrics.pick_seconds.observe(seconds)
        if streamed and not self._warned_streamed:
            self._warned_streamed = True
            log.warning(
                "request_body_mode is STREAMED: headers leave before the body is read, so no request can be"
                " sent to an endpoint because it is warm; use BUFFERED, BUFFERED_PARTIAL or"
                " FULL_DUPLEX_STREAMED"
            )


class _Unknown:
    """A fleet of which nothing is known."""

    view = None
