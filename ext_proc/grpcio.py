"""The service over grpc.aio, for addresses that other hosts can reach."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc

from ext_proc.server import SERVICE, ExtProcService
from ext_proc.unread import UnreadError, UnreadReplies
from fleet.service.opening import FIRST_MESSAGE_SECONDS

if TYPE_CHECKING:
    from ext_proc.processor import ExternalProcessor
    from ext_proc.server import ProcessHandler

_EOF: Final[Any] = grpc.aio.EOF
_RESET_SECONDS: Final = 0.005
"""gRPC may take this long to report a reset after the read that the reset ended."""
_CLOSING_SECONDS: Final = 1.0
"""For the last replies of streams, once all have ended."""


class GrpcioService(ExtProcService):
    """Reads and writes the streams of grpc.aio."""

    def __init__(self, processor: ExternalProcessor) -> None:
        super().__init__(processor)
        self.unread = UnreadReplies(processor.buffered)
        self._calls: set[asyncio.Task[Any]] = set()

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server; messages stay bytes until their turn."""
        process = grpc.stream_stream_rpc_method_handler(self.Process)
        handler = grpc.method_handlers_generic_handler(SERVICE, {"Process": process})
        server.add_generic_rpc_handlers((handler,))

    async def Process(  # noqa: N802 - gRPC's name
        self, _messages: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> None:
        """Serve one stream.

        Envoy ends a stream by a reset, and gRPC then cancels this coroutine. grpcio never frees a cancelled
        read, nor a status for a stream that was reset (https://github.com/grpc/grpc/issues/43360). So another
        task reads, which ends by itself with its last read, and the status waits until gRPC reports a reset.
        """
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        call = _GrpcioCall(context)
        handler = self.open(call)
        reading = asyncio.create_task(self._read(call, handler))
        reading.add_done_callback(call.finish)
        silent = asyncio.get_running_loop().call_later(FIRST_MESSAGE_SECONDS, handler.silent)
        try:
            await call.over
            if reading.done():
                reading.result()
            elif call.writes:
                reading.cancel()
            else:  # It ends with its read, which ends with the stream.
                await self.unread.write(context, call.taken())
            if call.left and not self.closing:
                await asyncio.sleep(_RESET_SECONDS)
        except UnreadError as error:
            handler.ended("memory")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except asyncio.CancelledError:
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.exception()
            raise
        finally:
            silent.cancel()
            handler.ended("reset")
            self._calls.discard(task)

    async def _read(self, call: _GrpcioCall, handler: ProcessHandler) -> None:
        """Read until the stream ends; the next message only when the replies to the last one are written."""
        context = call.context
        try:
            while not call.ended:
                call.reads = True
                data = await context.read()
                call.reads = False
                if data is _EOF:
                    call.left = True
                    handler.half_closed()
                    return
                handler.message(data)
                data = None  # It may be large, and the replies may wait for long.
                await handler.settled()
                call.writes = True
                await self.unread.write(context, call.taken())
                call.writes = False
        except grpc.aio.InternalError:
            call.left = True  # The client reset the stream during a read or write.
        except grpc.aio.UsageError:
            if not call.ended:
                raise

    async def close(self, grace_seconds: float = 1.0) -> None:
        """End every open stream with OK, and wait for its last replies."""
        await super().close(grace_seconds)
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=_CLOSING_SECONDS)


class _GrpcioCall:
    """A call of grpc.aio as a handler has it: replies are kept until they are written."""

    __slots__ = ("_replies", "context", "ended", "left", "over", "reads", "writes")

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.context = context
        self._replies: list[bytes] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """`asyncio.wait` costs far more CPU."""
        self.ended = False
        """The handler has ended the call."""
        self.left = False
        """The client has."""
        self.reads = self.writes = False
        """What the reading task waits for."""

    @property
    def peer(self) -> str:
        return str(self.context.peer())

    def write(self, *messages: bytes) -> None:
        self._replies += messages

    def taken(self) -> list[bytes]:
        """Return the replies since the last call."""
        replies, self._replies = self._replies, []
        return replies

    def end(self, _status: int = 0, _text: str = "") -> None:
        self.ended = True
        if self.reads or self.writes:
            self.finish()

    def finish(self, _reading: asyncio.Task[None] | None = None) -> None:
        """Let the call end now."""
        if not self.over.done():
            self.over.set_result(None)

    def pause_reading(self) -> None:
        """Nothing is read before the last message has been answered."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""
