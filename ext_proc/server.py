"""The gRPC service: carries `RequestStream` over grpc.aio."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from ext_proc.processor import RequestStream
from ext_proc.protocol.message import decode
from ext_proc.protocol.unread import Unread, UnreadError
from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb
from fleet.service.opening import FIRST_MESSAGE_SECONDS

if TYPE_CHECKING:
    from ext_proc.processor import ExternalProcessor

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

    def __init__(self, processor: ExternalProcessor) -> None:
        self.processor = processor
        self.unread = Unread()
        self._closing = False
        self._open: dict[asyncio.Task[Any], RequestStream] = {}

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
        end = _end_of(serving)
        silent = end.get_loop().call_later(FIRST_MESSAGE_SECONDS, self._end_silent, serving, end)
        try:
            await end
            if not serving.done():
                return  # The client was silent; the stream ends with OK, and so does its read.
            if serving.result() and not self._closing:
                await asyncio.sleep(_RESET_SECONDS)
        except UnreadError as error:
            self.processor.metrics.unread.inc()
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except asyncio.CancelledError:
            await _end_of(serving)
            serving.result()
            raise
        finally:
            silent.cancel()

    def _end_silent(self, serving: asyncio.Task[Any], end: asyncio.Future[None]) -> None:
        stream = self._open.get(serving)
        if stream is not None and not stream.begun and not end.done():
            end.set_result(None)

    async def _serve(self, context: grpc.aio.ServicerContext[Any, Any]) -> bool:
        """Answer a stream to its end; return whether the client has ended it."""
        task = asyncio.current_task()
        assert task is not None
        stream = self._open[task] = RequestStream(self.processor)
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
                    self.processor.metrics.unreadable.inc()
                    for reply in stream.leave_early():
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
            for reply in stream.leave_early() if stream.waits else ():
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


def _end_of(task: asyncio.Task[Any]) -> asyncio.Future[None]:
    """Return what is done when a task is, and may be cancelled alone. `asyncio.wait` costs far more CPU."""
    end: asyncio.Future[None] = task.get_loop().create_future()
    task.add_done_callback(lambda _: None if end.done() else end.set_result(None))
    return end


async def _first(context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """Read the first message; behind it Envoy may have sent pieces of a body, which would be lost with us."""
    async with asyncio.timeout(_FIRST_SECONDS):
        return await context.read()
