"""The gRPC service `envoy.service.ext_proc.v3.ExternalProcessor`, whatever carries it.

The lane calls `ExtProcService.open` for each stream, `ext_proc/grpcio.py` does so over grpc.aio. So both have
the same behaviour: large messages take turns, and a stream ends with OK wherever Envoy can go on without us.

`envoy.service.auth.v3.Authorization` has the leading parts of long bodies, and picks in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from ext_proc.pick.result import Reason
from ext_proc.processor import RequestStream
from ext_proc.protocol import leading
from ext_proc.protocol.message import decode
from fleet.service.serving import HealthNames
from fleet.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ext_proc.processor import ExternalProcessor
    from fleet.lane.method import Call

_FIRST_SECONDS: Final = 0.5
"""Time limit of the first message of a stream that opens while the service closes. Envoy may have sent pieces
of a body behind it, which would be lost."""
LAST_SECONDS: Final = 1.0
"""For clients to read the last replies, once all streams have ended."""
_LARGE_BYTES: Final = 65_536
"""Reading and answering a larger message may take a millisecond or more."""

SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
LEADING_SERVICE: Final = "envoy.service.auth.v3.Authorization"
HEALTH_NAMES: Final = HealthNames((SERVICE, "inference-extension", "readiness"), "liveness")
"""Names by which gateways and their charts ask for a picker's health."""


class ExtProcService:
    """The open streams, and what they share."""

    def __init__(self, processor: ExternalProcessor) -> None:
        self.processor = processor
        self.turns = Turns(time.monotonic)
        self.closing = False
        self._open: set[ProcessHandler] = set()
        self._empty = asyncio.Event()

    @property
    def methods(self) -> Mapping[str, Callable[[Call], ProcessHandler]]:
        """The methods by path."""
        return {f"/{SERVICE}/Process": self.open, f"/{LEADING_SERVICE}/Check": self.open_leading}

    def open(self, call: Call) -> ProcessHandler:
        """Begin a stream: one HTTP request."""
        return self._opened(ProcessHandler(self, call))

    def open_leading(self, call: Call) -> ProcessHandler:
        """Begin a call with the leading part of a body."""
        return self._opened(LeadingHandler(self, call))

    def _opened(self, handler: ProcessHandler) -> ProcessHandler:
        self._open.add(handler)
        if self.closing:
            asyncio.get_running_loop().call_later(_FIRST_SECONDS, handler.silent)
        return handler

    def forget(self, handler: ProcessHandler) -> None:
        """Remove a stream that has ended."""
        self._open.discard(handler)
        if not self._open:
            self._empty.set()

    async def close(self, grace_seconds: float = 1.0) -> None:
        """End every open stream with OK, so that requests in flight go on without us.

        Streams before their first message or the end of a body have `grace_seconds` to get there. One that
        answers a message by then ends behind that answer, which waits for other work or workers for
        `LAST_SECONDS` at most.
        """
        self.closing = True
        for handler in tuple(self._open):
            if handler.begun and handler.waits and handler.may_leave:
                self._leave(handler)
        await self._emptied(grace_seconds)
        for handler in tuple(self._open):
            self._leave(handler)
        await self._emptied(LAST_SECONDS)
        for handler in tuple(self._open):
            handler.end()

    async def _emptied(self, seconds: float) -> None:
        self._empty.clear()
        if self._open:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)

    def _leave(self, handler: ProcessHandler) -> None:
        with self.processor.faults:  # One costs no other stream its end.
            handler.leave()


class ProcessHandler:
    """One stream: from its first message until its response ends or either side leaves.

    A message is answered at once, without a task, unless it waits for its turn or for other workers. Those
    behind it wait then too.
    """

    __slots__ = (
        "_call",
        "_half_closed",
        "_leaves",
        "_over",
        "_queue",
        "_request",
        "_service",
        "_step",
        "begun",
    )
    _decode: Callable[[bytes], Any] = staticmethod(decode)

    def __init__(self, service: ExtProcService, call: Call, *, lasts: bool = True) -> None:
        self._service = service
        self._call = call
        self._request = RequestStream(service.processor, lasts=lasts)
        self._step: asyncio.Task[None] | None = None
        self._queue: deque[bytes] | None = None
        """Messages that have arrived during the step."""
        self._half_closed = self._over = self._leaves = False
        self.begun = False
        """Whether a message has come; the first one may have pieces of a body behind it."""

    @property
    def waits(self) -> bool:
        """Whether every message so far has been answered; the transport may still write the replies."""
        return self._step is None

    @property
    def may_leave(self) -> bool:
        """Whether the stream may end now without loss for the request."""
        return self._request.may_leave

    def message(self, data: bytes) -> None:
        """Answer a message. One behind the end, which Envoy sent before it learned of that, is dropped."""
        if self._over:
            return
        self.begun = True
        if self._step is not None:
            self._queue = self._queue or deque()
            self._queue.append(data)
            self._call.pause_reading()
            return
        try:
            replies = self._replies(data)
            if isinstance(replies, list):
                self._answer(replies)
            else:
                self._step = asyncio.create_task(self._go_on(replies))
                # A task that is cancelled before its first step leaves the replies' coroutine open.
                self._step.add_done_callback(lambda _: replies.close())
        except Exception as error:  # noqa: BLE001 - no fault of ours may fail a request
            self._fail(error)

    def half_closed(self) -> None:
        """No further message comes."""
        self._half_closed = True
        if self._step is None:
            self.end()

    def silent(self) -> None:
        """End the stream if no message has come."""
        if not self.begun:
            self.end()

    def ended(self, reason: str) -> None:
        """The stream is over."""
        if reason == "memory":
            self._service.processor.metrics.unread.inc()
        self._close()

    def leave(self) -> None:
        """End the stream, with what has been buffered of its body: behind the answer that is being made."""
        self._leaves = True
        if self._step is None and not self._over:
            self._write(self._request.leave_early())
            self.end()

    async def settled(self) -> None:
        """Return once all messages so far are answered."""
        while self._step is not None:
            await asyncio.wait((self._step,))

    def _replies(self, data: bytes) -> list[bytes] | Coroutine[Any, Any, list[bytes]]:
        """Answer a message. Large ones of all streams take turns: many may be complete in one pass.

        Raises:
            DecodeError: the message is malformed, or too large apart from its body.
        """
        if len(data) <= _LARGE_BYTES:
            return self._answered(self._decode(data))
        turns, piece = self._service.turns, partial(self._decode, data)
        return self._answered(turns.run_now(piece)) if turns.free else self._in_turn(piece)

    async def _in_turn(self, piece: partial[Any]) -> list[bytes]:
        message = await self._service.turns.run(piece)
        del piece  # It has the message's bytes.
        replies = self._answered(message)
        return replies if isinstance(replies, list) else await replies

    def _answered(self, message: Any) -> list[bytes] | Coroutine[Any, Any, list[bytes]]:
        return self._request.replies(message)

    async def _go_on(self, replies: Coroutine[Any, Any, list[bytes]]) -> None:
        """Answer a message that waits, then those behind it."""
        try:
            self._answer(await replies)
            while self._queue and not self._over:
                answered = self._replies(self._queue.popleft())
                self._answer(answered if isinstance(answered, list) else await answered)
        except Exception as error:  # noqa: BLE001 - no fault of ours may fail a request
            self._fail(error)
        finally:
            self._step = None
        if self._leaves:
            self.leave()
        elif self._half_closed:
            self.end()
        elif not self._over:
            self._call.resume_reading()

    def _answer(self, replies: list[bytes]) -> None:
        self._write(replies)
        if (self._service.closing and self._request.may_leave) or (not replies and self._request.done):
            self.end()

    def _write(self, replies: list[bytes]) -> None:
        if replies:
            self._call.write(*replies)

    def _fail(self, error: Exception) -> None:
        """End the stream with OK, so that the request goes on.

        Envoy sends headers as attributes, which must be UTF-8. Clients may send any bytes, or very many
        headers, so an unreadable message is neither a fault of ours nor a reason for an alarm.
        """
        processor = self._service.processor
        if isinstance(error, DecodeError):
            processor.metrics.unreadable.inc()
            self._write(self._request.leave_early())
        else:
            processor.faults.note(error)
        self.end()

    def end(self) -> None:
        """End the stream with OK, as it is."""
        if not self._over:
            self._close()
            self._call.end()

    def _close(self) -> None:
        if self._over:
            return
        self._over = True
        step, self._step, self._queue = self._step, None, None
        if step is not None and step is not asyncio.current_task():
            step.cancel()
        self._request.close()
        self._service.forget(self)


class LeadingHandler(ProcessHandler):
    """One call with the leading part of a body: it ends with its only answer, long before the response."""

    __slots__ = ()

    def __init__(self, service: ExtProcService, call: Call) -> None:
        super().__init__(service, call, lasts=False)

    def _decode(self, data: bytes) -> Any:
        return leading.decode(data, self._service.processor.settings.limits.body_bytes)

    def _answered(self, message: Any) -> list[bytes]:
        replies = list[bytes]()
        for part in message:
            answered = self._request.replies(part)
            assert isinstance(answered, list), "only a claim on a key waits, and such a call makes none"
            replies += answered
        admission, result = self._service.processor.settings.ext_proc.pick.admission, self._request.result
        unknown = result is not None and result.reason is Reason.UNKNOWN_MODEL
        return [leading.encode(replies, may_refuse=admission.enabled or unknown)]
