"""What a server of the lane and the methods that it serves know of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Call(Protocol):
    """A client's call of a method, as the method has it."""

    @property
    def peer(self) -> str:
        """Return the client's address, for logs."""

    def write(self, *messages: bytes) -> None:
        """Send serialised messages; nothing happens once the call has ended."""

    def end(self, status: int = 0, text: str = "") -> None:
        """End the call with a gRPC status, behind its messages. The handler gets nothing more."""

    def pause_reading(self) -> None:
        """Stop the client until `resume_reading`: further messages would have to be kept.

        A few may still come. The connection's other calls wait too, so a pause is to be short.
        """

    def resume_reading(self) -> None:
        """Let the client go on; nothing happens without a pause."""


class Handler(Protocol):
    """What a method does in one call. No method may wait: longer work continues in a task."""

    def message(self, data: bytes) -> None:
        """Take a message."""

    def half_closed(self) -> None:
        """No further message comes; the handler ends the call."""

    def silent(self) -> None:
        """No first message has come in time; the handler ends the call."""

    def ended(self, reason: str) -> None:
        """The call is over, by `reason`: see `fleet.lane.connection.Ended`, or `deadline`."""


Method = Callable[[Call], Handler]
