"""The gRPC service: carries `ExchangeStream` over grpc.aio, and holds what all streams share."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from ext_proc.decisions import PickDecisions
from ext_proc.idempotency.guard import Idempotency
from ext_proc.protocol.endpoint_picker import Duty
from ext_proc.protocol.held import HeldBytes
from ext_proc.protocol.message import decode
from ext_proc.protocol.stream import ExchangeStream, Rules
from ext_proc.protocol.unread import Unread, UnreadError
from ext_proc.server_metrics import Faults, Metrics
from ext_proc.spans import PickSpans
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.service.opening import FIRST_MESSAGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.trace import Tracer
    from prometheus_client import CollectorRegistry

    from ext_proc.director.director import Router
    from ext_proc.pick import Pick
    from ext_proc.protocol.endpoint_picker import ViewSource
    from fleet.settings import Settings

log = logging.getLogger(__name__)

_EOF: Final[Any] = grpc.aio.EOF
_FIRST_SECONDS: Final = 0.5
"""What a stream that is opened while the service closes has for its first message."""
_RESET_SECONDS: Final = 0.005
"""What gRPC may take to tell of a reset after the read that it ended."""

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH_SERVICES: Final = (
    SERVICE,
    "inference-extension",
    "readiness",
)
"""Names under which gateways and their charts ask for a picker's health, beside the empty one."""
LIVENESS_SERVICE: Final = "liveness"
"""The name under which they ask whether the process answers at all."""


class ExtProcService:
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
        keys: Idempotency | None = None,
    ) -> None:
        """`settings` are those to start with; `reconfigure` takes over others.

        `draw` is uniform in [0, 1), `wall` tells Unix seconds. `source` is the fleet's view, for gateways
        that must be told an endpoint even where nothing is picked. `on_served` hears the address that served
        a request, where a gateway tells it. `keys` knows which requests are in flight; by default it is this
        service's own.
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
        self.keys = keys or Idempotency(settings, registry, clock, "alone")
        self.held = HeldBytes(settings.limits.held_body_bytes)
        self.metrics.held_bytes.set_function(lambda: self.held.now)
        self.unread = Unread()
        self._streams = 0
        self.metrics.streams.set_function(lambda: self._streams)
        self._closing = False
        self._warned_streamed = False
        self._open: dict[asyncio.Task[Any], ExchangeStream] = {}

    @property
    def streams(self) -> int:
        """Streams that are open."""
        return self._streams

    def register(self, server: grpc.aio.Server) -> None:
        """Offer the service on a server."""
        # As the generated code does it, but for the reading.
        process = grpc.stream_stream_rpc_method_handler(
            self.Process,
            request_deserializer=decode,
            response_serializer=pb.ProcessingResponse.SerializeToString,
        )
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Process": process})
        server.add_generic_rpc_handlers((handler,))

    def reconfigure(self, settings: Settings) -> None:
        """Take over changed settings."""
        self.held.limit = settings.limits.held_body_bytes
        self.decisions.resize(settings.limits.decisions)
        self.rules = Rules.of(settings)
        self.keys.reconfigure(settings)

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
        """One HTTP request: from its first message until its response ends or either side leaves.

        Envoy ends a stream by resetting it, and gRPC then cancels this handler. grpcio never frees a read
        that is cancelled, nor a status for a stream that has been reset
        (https://github.com/grpc/grpc/issues/43360). So the reads are another task's, which ends by itself
        with its last read, and the status waits until a reset would have been told.
        """
        serving = asyncio.create_task(self._serve(context))
        try:
            await asyncio.wait((serving,), timeout=FIRST_MESSAGE_SECONDS)
            if not serving.done():
                if (stream := self._open.get(serving)) is not None and not stream.begun:
                    return  # It has said nothing, and ends with OK; so does its read.
                await asyncio.wait((serving,))
            if serving.result() and not self._closing:
                await asyncio.sleep(_RESET_SECONDS)
        except UnreadError as error:
            self.metrics.unread.inc()
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except asyncio.CancelledError:
            await asyncio.wait((serving,))
            serving.result()
            raise

    async def _serve(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        """Answer a stream to its end; return whether the client has ended it."""
        task = asyncio.current_task()
        assert task is not None
        stream = self._open[task] = ExchangeStream(self)
        try:
            while not (self._closing and stream.begun and stream.may_leave):
                stream.waits = True
                try:
                    late = self._closing and not stream.begun
                    message = await (_first(context) if late else context.read())
                except TimeoutError:
                    break
                except DecodeError:
                    # Envoy sends headers as attributes, which must be UTF-8; clients may send any bytes, or
                    # very many headers, so it is no fault of ours and no reason for an alarm.
                    self.metrics.unreadable.inc()
                    for reply in stream.let_go():
                        await context.write(reply)
                    break
                stream.waits = False
                if message is _EOF:
                    return True
                replies = await stream.replies(message)
                # It may be large, and the replies wait for long.
                message = None
                await self.unread.write(context.write, replies)
        except grpc.aio.InternalError:
            return True  # Reset while it was read or answered.
        except asyncio.CancelledError:
            # Our own close: ending with OK tells Envoy to go on without us, an error would fail the request.
            if not self._closing or context.cancelled():
                raise
            for reply in stream.let_go() if stream.waits else ():
                await context.write(reply)
        finally:
            del self._open[task]
            stream.close()
        return False

    async def close(self, grace_seconds: float = 1.0) -> None:
        """End every open stream with OK, so that requests in flight go on without us.

        Those in the midst of a body, or before their first message, have `grace_seconds` to get to its end.
        """
        self._closing = True
        for task, stream in tuple(self._open.items()):
            if stream.begun and stream.waits and stream.may_leave:
                task.cancel()
        if self._open:
            await asyncio.wait(tuple(self._open), timeout=grace_seconds)
        late = tuple(self._open)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)

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


async def _first(context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """Read the first message; behind it Envoy may have sent pieces of a body, which would be lost with us."""
    async with asyncio.timeout(_FIRST_SECONDS):
        return await context.read()


class _Unknown:
    """A fleet of which nothing is known."""

    view = None
