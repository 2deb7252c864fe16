"""Services for grpc.aio on the lane: each call has a task, and as much of a context as our services use.

Reading
    The method reads one message after the other. Messages that wait for that, and the one that it has, count
    in the server's budget, and the client may send no further than its stream's window.
Writing
    A write waits until the client's windows have taken the message.
Steps
    A call's task begins with its first message. A read of the socket may begin, continue or end the calls of
    thousands of streams, so each pass of the loop lets only some tasks go on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import grpc

from fleet.service.gate import LastingStreams
from fleet.service.opening import FIRST_MESSAGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fleet.lane.method import LaneCall, Method
    from fleet.service.gate import Gate
    from fleet.settings import RoleSettings
    from fleet.settings.tls import Role

logger = logging.getLogger(__name__)

_EOF: Final[Any] = grpc.aio.EOF
_STEPS: Final = 32
"""Tasks that go on in a pass of the loop: at most some 8 ms, for calls that begin or end."""
_MESSAGE_BYTES: Final = 64
"""Memory of a message that waits, next to its bytes."""


class Services:
    """Takes services as a grpc.aio server does, and has their methods for the lane."""

    def __init__(self, gate: Gate | None = None) -> None:
        """`gate` is the server's: streams that changed roles no longer allow end."""
        self.methods: dict[str, Method] = {}
        """By path."""
        self.gate = gate
        self._streams: LastingStreams[ServedCall] | None = None if gate is None else LastingStreams(gate)
        self._steps: deque[Callable[[], object]] = deque()

    def add_generic_rpc_handlers(self, handlers: Iterable[Any]) -> None:
        """Do nothing: the same methods come by `add_registered_method_handlers`, with their names."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        """Add the methods of a service."""
        for name, handler in handlers.items():
            self.methods[f"/{service}/{name}"] = partial(ServedCall, self, service, handler)

    def reconfigure(self, roles: RoleSettings | None) -> None:
        """Apply changed settings."""
        if self._streams is not None:
            for call, why in self._streams.reconfigure(roles):
                call.refuse(why)

    def has(self, context: ServedCall, role: Role) -> bool:
        """Whether the peer of a call has a role."""
        return self.gate is None or self.gate.has(self.gate.names(context.certificate), role)

    def opened(self, served: ServedCall, service: str, call: LaneCall) -> None:
        """Note a call that has begun."""
        if self._streams is not None and self.gate is not None:
            self._streams.add(served, self.gate.names(served.certificate), service, call.peer)

    def closed(self, served: ServedCall) -> None:
        """Forget a call that has ended."""
        if self._streams is not None:
            self._streams.discard(served)

    def soon(self, step: Callable[[], object]) -> None:
        """Let a task go on in its turn."""
        self._steps.append(step)
        if len(self._steps) == 1:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        for _ in range(min(_STEPS, len(self._steps))):
            self._steps.popleft()()
        if self._steps:
            asyncio.get_running_loop().call_soon(self._go_on)


class ServedCall:
    """One call: a handler of the lane for its server; context and iterator of messages for its method."""

    __slots__ = (
        "_begun",
        "_call",
        "_half_closed",
        "_handler",
        "_in_hand",
        "_messages",
        "_over",
        "_reading",
        "_services",
        "_status",
        "_task",
    )

    def __init__(self, services: Services, service: str, handler: Any, call: LaneCall) -> None:
        self._services = services
        self._handler = handler
        self._call = call
        self._messages: deque[bytes] = deque()
        self._in_hand = 0
        """Of the message that the method has, as counted."""
        self._reading: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._status = grpc.StatusCode.OK, ""
        self._begun = self._half_closed = self._over = False
        services.opened(self, service, call)

    # For the server of the lane.

    def message(self, data: bytes) -> None:
        """Keep a message until the method reads it."""
        if self._over:
            return
        self._messages.append(data)
        self._call.keep(len(data) + _MESSAGE_BYTES)
        self._go_on()

    def half_closed(self) -> None:
        """No further message comes."""
        self._half_closed = True
        self._go_on()

    def silent(self) -> None:
        """End the call if nothing has come."""
        if not self._begun:
            self._status = grpc.StatusCode.DEADLINE_EXCEEDED, f"no message within {FIRST_MESSAGE_SECONDS:g} s"
            self._end()

    def ended(self, _reason: str) -> None:
        """Cancel the method."""
        if not self._over:
            # Without a reference to the task: its error refers to this object, and only the garbage
            # collector would free both.
            task, self._task = self._task, None
            self._close()
            if task is not None:
                self._services.soon(task.cancel)

    def refuse(self, why: str) -> None:
        """End the call, which its peer may no longer have."""
        if not self._over:
            self._call.end(grpc.StatusCode.PERMISSION_DENIED.value[0], why)
            self.ended("")

    # For the method.

    def peer(self) -> str:
        """Return the client's address."""
        return self._call.peer

    @property
    def certificate(self) -> bytes:
        """Return the client's certificate in DER; b"" without one."""
        return self._call.certificate

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str]]) -> None:
        """Send response headers now."""
        self._call.answer(*((name.encode(), value.encode()) for name, value in metadata))

    async def read(self) -> Any:
        """Return the next message, or gRPC's mark of the end. The one before is done."""
        if self._in_hand:
            self._call.free(self._in_hand)
            self._in_hand = 0
        while not self._messages:
            if self._half_closed:
                return _EOF
            self._reading = asyncio.get_running_loop().create_future()
            await self._reading
            self._reading = None
        data = self._messages.popleft()
        self._in_hand = len(data) + _MESSAGE_BYTES
        deserialise = self._handler.request_deserializer
        return data if deserialise is None else deserialise(data)

    async def write(self, message: Any) -> None:
        """Send a message; return once it waits for the client no more."""
        serialise = self._handler.response_serializer
        self._call.write(message if serialise is None else serialise(message))
        sending = self._call.sending()
        if sending is not None:
            await sending

    async def abort(self, code: grpc.StatusCode, details: str = "") -> None:
        """End the call with an error.

        Raises:
            AbortError: always, so that the method ends.
        """
        self._status = code, details
        raise grpc.aio.AbortError

    def __aiter__(self) -> ServedCall:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is _EOF:
            raise StopAsyncIteration
        return message

    # Its life.

    def _go_on(self) -> None:
        if not self._begun:
            self._begun = True
            self._services.soon(self._begin)
        elif self._reading is not None:
            self._services.soon(self._wake_up)

    def _begin(self) -> None:
        if not self._over:
            self._task = asyncio.create_task(self._run())

    def _wake_up(self) -> None:
        waiting = self._reading
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _run(self) -> None:
        try:
            await self._serve()
        except grpc.aio.AbortError:
            pass
        except Exception:  # the edge for faults of ours: they end this call
            logger.exception("a method failed")
            self._status = grpc.StatusCode.UNKNOWN, "internal error"
        finally:
            self._end()

    async def _serve(self) -> None:
        handler = self._handler
        kinds = handler.stream_stream, handler.stream_unary, handler.unary_stream, handler.unary_unary
        method = next(kind for kind in kinds if kind is not None)
        requests = self if handler.request_streaming else await self.read()
        if requests is _EOF:
            await self.abort(grpc.StatusCode.INVALID_ARGUMENT, "a call without a message")
        answering = method(requests, self)
        del requests  # It would keep the message until the call ends.
        if inspect.isasyncgen(answering):
            async with aclosing(answering):
                async for response in answering:
                    await self.write(response)
        elif (response := await answering) is not None:
            await self.write(response)

    def _end(self) -> None:
        if not self._over:
            self._task = None
            self._close()
            code, text = self._status
            self._call.end(code.value[0], text)

    def _close(self) -> None:
        self._over = True
        self._messages.clear()
        self._services.closed(self)
