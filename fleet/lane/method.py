"""What a server of the lane and the methods that it serves know of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


class Call(Protocol):
    """A client's call of a method, as the method has it."""

    def write(self, *messages: bytes) -> None:
        """Send serialised messages; nothing happens once the call has ended."""

    def end(self, status: int = 0, text: str = "") -> None:
        """End the call with a gRPC status, behind its messages. The handler gets nothing more."""

    def pause_reading(self) -> None:
        """Stop the client until `resume_reading`: further messages would have to be kept.

        What fits into the call's window may still come: at most `STREAM_WINDOW` bytes, or the rest of a
        larger message that has begun. The connection's other calls go on.
        """

    def resume_reading(self) -> None:
        """Let the client go on; nothing happens without a pause."""


class LaneCall(Call, Protocol):
    """A call as a server of the lane has it."""

    @property
    def peer(self) -> str:
        """Return the client's address as gRPC does: `ipv4:10.0.0.1:5000`, `ipv6:[::1]:5000` or `unix:`."""

    @property
    def certificate(self) -> bytes:
        """Return the client's certificate in DER; b"" without one."""

    def sending(self) -> asyncio.Future[None] | None:
        """Return what is done once no message waits for the client; None: none does."""

    def answer(self, *fields: tuple[bytes, bytes]) -> None:
        """Send response headers with more fields, before any message."""

    def keep(self, size: int) -> None:
        """Count a message of `size` bytes that the handler has not finished.

        Meanwhile the client may send no more than its stream's window, and no more than the server's budget.
        """

    def free(self, size: int) -> None:
        """Count a message that the handler has finished."""


class Handler(Protocol):
    """What a method does in one call. No method may wait: longer work continues in a task."""

    def message(self, data: bytes) -> None:
        """Take a message."""

    def half_closed(self) -> None:
        """No further message comes; the handler ends the call."""

    def silent(self) -> None:
        """No first message has come in time; the handler ends the call."""

    def ended(self, reason: str) -> None:
        """The call is over, by `reason`: see `fleet.lane.connection.Ended`, or `deadline`.

        After a fault of the handler's own it is `fault`.
        """


Method = Callable[[LaneCall], Handler]
