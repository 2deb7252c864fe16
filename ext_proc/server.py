"""The gRPC service: carries `RequestStream` over grpc.aio."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from ext_proc.processor import RequestStream
from ext_proc.protocol.message import decode
from ext_proc.unread import UnreadError, UnreadReplies
from fleet.service.opening import FIRST_MESSAGE_SECONDS
from fleet.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ext_proc.processor import ExternalProcessor
    from fleet.envoy_api.service.ext_proc.v3 import external_processor_pb2 as pb

_EOF: Final[Any] = grpc.aio.EOF
_FIRST_SECONDS: Final = 0.5
"""Time limit of the first message of a stream that opens while the service closes."""
_RESET_SECONDS: Final = 0.005
"""gRPC may take this long to report a reset after the read that the reset ended."""
_LARGE_BYTES: Final = 65_536
"""Reading and answering a larger message may take a millisecond or more."""

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH_SERVICES: Final = (
    SERVICE,
    "inference-extension",
    "readiness",
)
"""Names of gateways and their charts for a picker's health, in addition to the empty name."""
LIVENESS_SERVICE: Final = "liveness"
"""Their name for the health of the process itself."""


class ExtProcService:
    """`envoy.service.ext_proc.v3.ExternalProcessor` over grpc.aio."""

    def __init__(self, processor: ExternalProcessor) -> None:
        self.processor = processor
        self.unread = UnreadReplies(processor.buffered)
        self._turns = Turns(time.monotonic)
        self._closing = False
        self._open: dict[asyncio.Task[Any], RequestStream] = {}

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server; messages stay bytes until their turn."""
        process = grpc.stream_stream_rpc_method_handler(self.Process)
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Process": process})
        server.add_generic_rpc_handlers((handler,))

    async def Process(  # noqa: N802 - gRPC's name
        self, _messages: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Serve one HTTP request: from its first message until its response ends or either side leaves.

        Envoy ends a stream by a reset, and gRPC then cancels this handler. grpcio never frees a cancelled
        read, nor a status for a stream that was reset (https://github.com/grpc/grpc/issues/43360). So another
        task reads, which ends by itself with its last read, and the status waits until gRPC reports a reset.
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
        """Answer a stream until it ends; return whether the client has ended it."""
        task = asyncio.current_task()
        assert task is not None
        stream = self._open[task] = RequestStream(self.processor)
        try:
            while not (self._closing and stream.begun and stream.may_leave):
                stream.waits = True
                try:
                    late = self._closing and not stream.begun
                    data = await (_first(context) if late else context.read())
                except TimeoutError:
                    break
                stream.waits = False
                if data is _EOF:
                    return True
                stream.begun = True
                try:
                    replies = await self._replies(stream, data)
                except DecodeError:
                    # Envoy sends headers as attributes, which must be UTF-8. Clients may send any bytes, or
                    # very many headers, so this is neither a fault of ours nor a reason for an alarm.
                    self.processor.metrics.unreadable.inc()
                    await self.unread.write(context, _serialised(stream.leave_early()))
                    break
                data = None  # It may be large, and the replies may wait for long.
                await self.unread.write(context, replies)
                replies = []  # As large, and the next message may be long in coming.
        except grpc.aio.InternalError:
            return True  # The client reset the stream during a read or write.
        except asyncio.CancelledError:
            # Our own close: OK tells Envoy to continue without us, an error would fail the request.
            if not self._closing or context.cancelled():
                raise
            if stream.waits:
                await self.unread.write(context, _serialised(stream.leave_early()))
        finally:
            del self._open[task]
            stream.close()
        return False

    async def _replies(self, stream: RequestStream, data: bytes) -> list[bytes]:
        """Return the serialised replies to a message. Large messages of all streams take turns.

        gRPC delivers all complete messages in one pass of the loop.

        Raises:
            DecodeError: the message is malformed, or too large apart from its body.
        """
        large = len(data) > _LARGE_BYTES
        message = await self._turns.run(partial(decode, data)) if large else decode(data)
        replies = stream.replies(message)
        return _serialised(replies if isinstance(replies, list) else await replies)

    async def close(self, grace_seconds: float = 1.0) -> None:
        """End every open stream with OK, so that requests in flight go on without us.

        Streams before their first message or the end of a body have `grace_seconds` to get there.
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
    """Return a future of a task's end that can be cancelled alone. `asyncio.wait` costs far more CPU."""
    end: asyncio.Future[None] = task.get_loop().create_future()
    task.add_done_callback(lambda _: None if end.done() else end.set_result(None))
    return end


def _serialised(replies: Iterable[pb.ProcessingResponse]) -> list[bytes]:
    return [reply.SerializeToString() for reply in replies]


async def _first(context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    """Read the first message. Envoy may have sent pieces of a body behind it, which would be lost."""
    async with asyncio.timeout(_FIRST_SECONDS):
        return await context.read()
