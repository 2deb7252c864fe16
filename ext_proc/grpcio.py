"""The service over grpc.aio, for addresses that other hosts can reach."""

from __future__ import annotations

import asyncio
import enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc

from ext_proc.server import LAST_SECONDS, ExtProcService
from ext_proc.unread import UnreadError, UnreadReplies
from fleet.service.opening import FIRST_MESSAGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ext_proc.processor import ExternalProcessor
    from ext_proc.server import ProcessHandler

_EOF: Final[Any] = grpc.aio.EOF
_RESET_SECONDS: Final = 0.005
"""gRPC may take this long to report a reset after the read that the reset ended."""


class GrpcioService(ExtProcService):
    """Reads and writes the streams of grpc.aio."""

    def __init__(self, processor: ExternalProcessor) -> None:
        super().__init__(processor)
        self.unread = UnreadReplies()
        self._calls: set[asyncio.Task[Any]] = set()

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server; messages stay bytes until their turn."""
        for path, begin in self.methods.items():
            service, name = path[1:].split("/")
            # A unary call is a stream of one message.
            handler = grpc.stream_stream_rpc_method_handler(partial(self._serve, begin))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))

    async def _serve(
        self,
        begin: Callable[[Any], ProcessHandler],
        _messages: Any,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> None:
        """Serve one stream.

        Envoy ends a stream by a reset, and gRPC then cancels this coroutine. grpcio never frees a cancelled
        read, nor a status for a stream that was reset (https://github.com/grpc/grpc/issues/43360). So another
        task reads, which ends by itself with its last read, and the status waits until gRPC reports a reset.
        """
        call, handler = _GrpcioCall(context), None
        with self.processor.faults:
            handler = begin(call)
        if handler is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        reading = asyncio.create_task(self._read(call, handler))
        reading.add_done_callback(lambda _: call.finish())
        silent = asyncio.get_running_loop().call_later(FIRST_MESSAGE_SECONDS, handler.silent)
        try:
            await call.over
            if not reading.done():  # It ends with its read, which ends with the stream.
                await self.unread.write(context, call.taken())
            elif reading.result() and not self.closing:
                await asyncio.sleep(_RESET_SECONDS)
        except UnreadError as error:
            handler.ended("memory")
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except Exception as error:  # noqa: BLE001 - no fault of ours may fail a request
            self.processor.faults.note(error)
        except asyncio.CancelledError:
            await asyncio.wait((reading,))
            if not reading.cancelled():
                reading.exception()
            raise
        finally:
            silent.cancel()
            handler.ended("reset")
            self._calls.discard(task)

    async def _read(self, call: _GrpcioCall, handler: ProcessHandler) -> bool:
        """Read until the stream ends, and return whether its client has left.

        The next message is read only when the replies to the last one are written.
        """
        context = call.context
        try:
            while call.state is not _State.OVER:
                call.state = _State.READING
                data = await context.read()
                if call.state is _State.OVER:
                    break
                call.state = _State.ANSWERING
                if data is _EOF:
                    handler.half_closed()
                    return True
                handler.message(data)
                data = None  # It may be large, and the replies may wait for long.
                await handler.settled()
                while replies := call.taken():
                    await self.unread.write(context, replies)
        except grpc.aio.InternalError:
            return True  # The client reset the stream during a read or write.
        except grpc.aio.UsageError:
            if call.state is not _State.OVER:
                raise
        return False

    async def close(self, grace_seconds: float = 1.0) -> None:
        """End every open stream with OK.

        Replies that are being written have the rest of the grace, and `LAST_SECONDS` at least.
        """
        now = asyncio.get_running_loop().time
        until = now() + grace_seconds
        await super().close(grace_seconds)
        if self._calls:
            await asyncio.wait(tuple(self._calls), timeout=max(until - now(), LAST_SECONDS))


class _State(enum.Enum):
    """What a call's reading task does."""

    READING = enum.auto()
    ANSWERING = enum.auto()
    """It waits for the replies to a message, or writes them."""
    OVER = enum.auto()
    """The handler has ended the call; the task still writes the replies that it has begun with."""


class _GrpcioCall:
    """A call of grpc.aio as a handler has it: replies are kept until they are written."""

    __slots__ = ("_replies", "context", "over", "state")

    def __init__(self, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        self.context = context
        self._replies: list[bytes] = []
        self.state = _State.ANSWERING
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the status may be sent. `asyncio.wait` costs far more CPU."""

    def write(self, *messages: bytes) -> None:
        self._replies += messages

    def taken(self) -> list[bytes]:
        """Return the replies since the last call."""
        replies, self._replies = self._replies, []
        return replies

    def end(self, _status: int = 0, _text: str = "") -> None:
        if self.state is _State.READING:
            self.finish()
        self.state = _State.OVER

    def finish(self) -> None:
        """Let the status be sent."""
        if not self.over.done():
            self.over.set_result(None)

    def pause_reading(self) -> None:
        """Nothing is read before the last message has been answered."""

    def resume_reading(self) -> None:
        """As `pause_reading`."""
