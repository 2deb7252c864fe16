"""The first message of a call: each method of a gRPC server begins with it, or the call ends.

gRPC assembles a whole message before it can be read, and keeps a call without one for as long as its peer
likes. So a call has a time limit for its first message, a shorter one while many calls wait, and above
`MOST_SILENT` the oldest ends. A working peer sends its first message long before.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

FIRST_MESSAGE_SECONDS: Final = 10.0
"""Time limit of a call's first message."""
CROWDED: Final = 64
"""With more silent calls than this, each has `CROWDED_SECONDS`."""
CROWDED_SECONDS: Final = 2.0
MOST_SILENT: Final = 1024
"""Silent calls of one server; above that the oldest ends."""


def too_silent(calls: int, longest_seconds: float) -> bool:
    """Whether the oldest of a server's silent calls, silent for `longest_seconds`, has to end."""
    return calls > MOST_SILENT or (calls > CROWDED and longest_seconds > CROWDED_SECONDS)


class FirstMessages(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Wraps all methods of one server, and calls each once its first message has arrived."""

    def __init__(self, apart: Collection[str] = ()) -> None:
        """Services in `apart` limit their first messages themselves."""
        self._apart = apart
        self._silent: deque[tuple[asyncio.Future[None], float]] = deque()
        """The oldest first; ended calls stay until they are the oldest."""
        self.waiting = 0
        """Calls without a first message."""

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Wait for the first message before the called method."""
        handler = await continuation(handler_call_details)
        service = handler_call_details.method.lstrip("/").partition("/")[0]
        return handler if handler is None or service in self._apart else self._opened(handler)

    async def first(self, context: Any) -> asyncio.Future[Any] | None:
        """Return a call's first read once it is done, with or without a message; None: the time is over.

        In that case the call's status is set, and the call has to end.
        """
        reading: asyncio.Future[Any] = asyncio.ensure_future(context.read())
        reading.add_done_callback(_look)
        ended = asyncio.get_running_loop().create_future()
        self._admit(ended)
        try:
            # The read is not cancelled: it ends with the call.
            await asyncio.wait(
                (reading, ended), timeout=FIRST_MESSAGE_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            early = ended.done()
            self.waiting -= 1
            ended.cancel()
        if reading.done():
            return reading
        # No `abort`: its exception leaves reference cycles, and very many at once block the loop.
        context.set_code(grpc.StatusCode.DEADLINE_EXCEEDED)
        within = (
            f"within {FIRST_MESSAGE_SECONDS:g} s" if not early else "yet, and too many calls wait for theirs"
        )
        context.set_details(f"no message {within}")
        return None

    def _admit(self, ended: asyncio.Future[None]) -> None:
        now = asyncio.get_running_loop().time()
        self.waiting += 1
        self._silent.append((ended, now))
        while self._silent:
            oldest, since = self._silent[0]
            if not (oldest.done() or too_silent(self.waiting, now - since)):
                break
            self._silent.popleft()
            if not oldest.done():
                oldest.set_result(None)
                break  # It leaves in the next pass; each new call ends one.

    def _opened(self, handler: Any) -> Any:
        if handler.request_streaming:
            return self._of_many(handler, "stream_stream" if handler.response_streaming else "stream_unary")
        # As a stream method, whose first message this class reads.
        method = self._of_one(handler.unary_stream or handler.unary_unary)
        return handler._replace(
            request_streaming=True,
            response_streaming=True,
            unary_unary=None,
            unary_stream=None,
            stream_stream=method,
        )

    def _of_one(self, behaviour: Any) -> Any:
        async def method(_: Any, context: Any) -> None:
            first = await self.first(context)
            if first is None:
                return
            if first.result() is grpc.aio.EOF:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
            answering = behaviour(first.result(), context)
            del first  # It would keep the message until the call ends.
            if inspect.isasyncgen(answering):
                async for response in answering:
                    await context.write(response)
            elif (response := await answering) is not None:
                await context.write(response)

        return method

    async def _open(self, context: Any) -> _Opened | None:
        """Await the first message, which only the returned stream refers to."""
        first = await self.first(context)
        return None if first is None else _Opened(context, first)

    def _of_many(self, handler: Any, kind: str) -> Any:
        behaviour = getattr(handler, kind)

        async def answers(_: Any, context: Any) -> Any:
            opened = await self._open(context)
            return None if opened is None else await behaviour(opened, opened)

        async def messages(_: Any, context: Any) -> AsyncIterator[Any]:
            if (opened := await self._open(context)) is None:
                return
            responses = behaviour(opened, opened)
            try:
                async for message in responses:
                    yield message
            finally:
                await responses.aclose()

        return handler._replace(**{kind: messages if inspect.isasyncgenfunction(behaviour) else answers})


class _Opened:
    """The messages of a call from the first one on, and its context for all other attributes."""

    __slots__ = ("_context", "_first")

    def __init__(self, context: Any, first: asyncio.Future[Any]) -> None:
        self._context = context
        self._first: asyncio.Future[Any] | None = first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        """Return the next message, or gRPC's mark of the end."""
        if self._first is None:
            return await self._context.read()
        message = self._first.result()
        if message is not grpc.aio.EOF:
            self._first = None
        return message

    def __aiter__(self) -> _Opened:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return message


def _look(reading: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a read that nothing awaits any more."""
    if not reading.cancelled():
        reading.exception()
