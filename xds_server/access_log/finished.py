"""One finished request from an Envoy's access log. Pure.

The party at fault for a failed request:

- a 5xx from the host, or a connection to it that failed or broke: the host;
- a 4xx, 429 included: the client, or an overloaded host; no fault here (`refusals.py` compares peers);
- a client that disconnected: none, the request only counts as finished;
- the end of a WebSocket: none. The server closes the connection first (RFC 6455, 7.1.1), and Envoy flags
  that as broken. Its opening has an entry of its own, and counts as an answer;
- a response that Envoy made without a host: none;
- a pick that was tried first, while another host served: the picked host, unless the cause may be a 4xx.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_FLAGS: Final = frozenset(("UF", "UC", "UR", "LR", "UT", "UPE"))
"""Envoy's flags of a connection or exchange with the host that failed."""
CLIENT_FLAGS: Final = frozenset(("DC", "DR"))
"""Envoy's flags of a client that disconnected."""
UNANSWERED: Final = "unanswered"
SWITCHED: Final = 101
"""The status of every accepted upgrade, also over HTTP/2, whose own status is 200."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One request that has ended, as an Envoy saw it."""

    address: str
    """The endpoint of the last attempt; empty: none was reached."""
    picked: str
    """The first endpoint of ext_proc's pick; empty: it went by weights."""
    cluster: str
    """The pool; either of its Envoy clusters."""
    request_id: str
    started_at: float
    """Unix time in seconds."""
    first_byte_seconds: float | None
    """From the start to the first byte of the host's answer. An answer that is not streamed comes at its
    end, so there it is the whole duration."""
    duration_seconds: float | None
    """From the start to the last byte sent to the client, or to the end without one."""
    status: int
    """HTTP status; 0: the client left before there was one."""
    flags: tuple[str, ...]
    """Envoy's response flags, such as `UF`."""
    attempts: int
    metadata: Mapping[str, str]
    """ext_proc's dynamic metadata about its decision."""
    sent_seconds: float | None = None
    """From the start to the first byte sent to the host, in the last attempt."""
    over_http1: bool = False
    """Whether it went by the cluster that speaks HTTP/1.1 to a pool that otherwise speaks HTTP/2."""
    session: int | None = None
    """Hash of the request's session, valid in this process; None: it has none. Envoy keeps the requests of a
    session without a pick on one endpoint."""
    request_bytes: int = 0
    """Of the request's body."""
    response_bytes: int = 0
    """Of the body that went to the client."""
    handshake: bool = False
    """Whether it used the route of WebSocket handshakes."""
    unseen: str = ""
    """Why ext_proc has not decided: a cause of `UNSEEN_ROUTES` or `UNANSWERED`; empty: it has, or unknown."""
    established: bool = False
    """A WebSocket has opened and goes on. Its end is another entry, with status 101."""

    @property
    def aborted(self) -> bool:
        """Whether the client disconnected."""
        return not CLIENT_FLAGS.isdisjoint(self.flags)

    @property
    def faulty(self) -> bool:
        """Whether the host of the last attempt is at fault."""
        if self.aborted or self.status == SWITCHED:
            return False
        return not HOST_FLAGS.isdisjoint(self.flags) or (
            self.status >= 500 and self.first_byte_seconds is not None
        )

    @property
    def elsewhere_seconds(self) -> float | None:
        """Seconds of the failed attempts before the last one; None: unknown."""
        return self.sent_seconds if self.attempts > 1 else 0.0

    @property
    def retried_away(self) -> bool:
        """Whether the pick was tried and another endpoint served the request."""
        return self.attempts > 1 and bool(self.picked) and self.picked != self.address
