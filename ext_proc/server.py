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
import traceback
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import grpc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as pb_grpc
from prometheus_client import Counter, Gauge, Histogram

from ext_proc import spans
from ext_proc.decisions import PickDecisions
from ext_proc.exchange import Exchange
from ext_proc.pick import Pick, Reason
from ext_proc.spans import PickSpans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
    from opentelemetry.trace import Span, Tracer
    from prometheus_client import CollectorRegistry

    from ext_proc.request import RouteRequest
    from ext_proc.routing import Router
    from ext_proc.traffic import Token
    from fleet.settings import Settings

log = logging.getLogger(__name__)

FAULT_LOG_INTERVAL_SECONDS: Final = 60.0
_EOF: Final[Any] = grpc.aio.EOF
_PICK_BUCKETS: Final = (
    25e-6, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6,
    1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 25.6e-3, 51.2e-3, 0.1, 0.25,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the service counts. Children stand ready, because label look-ups cost on the hot path."""

    picks: Mapping[Reason, Any]
    faults: Counter
    streams: Any
    pick_seconds: Any

    @classmethod
    def on(cls, registry: CollectorRegistry) -> Metrics:
        """Register with a registry."""
        picks = Counter("warmroute_picks", "Decisions by reason", ["reason"], registry=registry)
        return cls(
            picks={reason: picks.labels(reason=reason.value) for reason in Reason},
            faults=Counter(
                "warmroute_ext_proc_faults", "Faults of our own, by exception", ["kind"], registry=registry
            ),
            streams=Gauge("warmroute_ext_proc_streams", "Open ext_proc streams", registry=registry),
            pick_seconds=Histogram(
                "warmroute_pick_duration_seconds",
                "Reading a body, looking its prefix up and choosing",
                buckets=_PICK_BUCKETS,
                registry=registry,
            ),
        )


class Faults:
    """Counts each fault and logs one a minute and kind, by place and type: its text may hold a prompt."""

    def __init__(self, counter: Counter, clock: Callable[[], float]) -> None:
        self._counter = counter
        self._clock = clock
        self._logged: dict[str, float] = {}

    def note(self, error: Exception) -> None:
        """Count and perhaps log."""
        kind = type(error).__name__
        self._counter.labels(kind=kind).inc()
        now = self._clock()
        if now - self._logged.get(kind, float("-inf")) < FAULT_LOG_INTERVAL_SECONDS:
            return
        self._logged[kind] = now
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
        log.error("fault, answered unrouted: %s at %s", kind, place)


class ExchangeStream:
    """One request's stream, without its transport: messages in, replies out, `close` at whatever end."""

    __slots__ = ("_asked", "_exchange", "_pick_seconds", "_service", "_span", "_token")

    def __init__(self, service: ExtProcService) -> None:
        self._service = service
        self._token: Token | None = None
        self._span: Span | None = None
        self._pick_seconds = 0.0
        self._asked: RouteRequest | None = None
        if service.admit():
            self._exchange = Exchange(self._route, body_limit=service.settings.limits.body_bytes)
        else:
            self._exchange = Exchange(_over_limit, body_limit=0)

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
        replies = self._exchange.on_fault(message)
        if undecided:
            self._service.metrics.picks[Reason.FAULT].inc()
            self._tell(Pick.none(Reason.FAULT))
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
        span = self._span = service.spans.begin(request.traceparent, service.settings.telemetry)
        try:
            if span is None:
                return service.router.route(request)
            pick = service.router.route(replace(request, explain=True))
            return replace(pick, trace=spans.traceparent_of(span))
        finally:
            self._pick_seconds = service.clock() - started_at

    def _decided(self, pick: Pick) -> None:
        # A stream that ends early would tell of an idle, fast endpoint; unknown is better than wrong.
        if pick.endpoints and self._exchange.lasts:
            self._token = self._service.router.started(pick)
        service = self._service
        if self._asked is None:
            # Decided by the exchange alone, which asks nobody.
            self._span = service.spans.begin(self._exchange.traceparent, service.settings.telemetry)
        service.note_pick(pick, self._pick_seconds)
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
    ) -> None:
        """`settings` are those to start with; the router's are followed.

        `draw` is uniform in [0, 1), `wall` tells Unix seconds.
        """
        self.router = router
        self.clock = clock
        self.metrics = Metrics.on(registry)
        self.faults = Faults(self.metrics.faults, clock)
        self.spans = PickSpans(tracer, draw, router.sampling_floor)
        self.decisions = PickDecisions(settings.limits.decisions, wall)
        self._streams = 0
        self._closing = False
        self._warned_streamed = False
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def settings(self) -> Settings:
        """The newest settings."""
        return self.router.settings

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return self._streams

    def register(self, server: grpc.aio.Server) -> None:
        """Offer the service on a server."""
        pb_grpc.add_ExternalProcessorServicer_to_server(self, server)

    def reconfigure(self, settings: Settings) -> None:
        """Take over what is not read from the router's settings at each request."""
        self.decisions.resize(settings.limits.decisions)

    def admit(self) -> bool:
        """Count a stream in; False when it is over the limit and goes unrouted."""
        self._streams += 1
        self.metrics.streams.set(self._streams)
        return self._streams <= self.settings.limits.ext_proc_streams

    def leave(self) -> None:
        """Count a stream out."""
        self._streams -= 1
        self.metrics.streams.set(self._streams)

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

    def note_pick(self, pick: Pick, seconds: float) -> None:
        """Count a decision."""
        self.metrics.picks[pick.reason].inc()
        if seconds:
            self.metrics.pick_seconds.observe(seconds)
        if pick.reason is Reason.STREAMED and not self._warned_streamed:
            self._warned_streamed = True
            log.warning(
                "request_body_mode is STREAMED: headers leave before the body is read, so no request can be"
                " sent to a warm endpoint; use BUFFERED, BUFFERED_PARTIAL or FULL_DUPLEX_STREAMED"
            )


def _over_limit(_request: RouteRequest) -> Pick:
    return Pick.none(Reason.OVER_LIMIT)
