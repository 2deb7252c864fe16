"""One request that an Envoy has finished, as its access log has it. Pure.

The side to blame for a request that went wrong:

- 5xx that the host itself answered, and connections to it that failed, broke or could not be made: the host;
- 4xx, 429 included: the client, or a host that defends itself; no fault here (`refusals.py` compares peers);
- a client that went away: nobody, the request counts as finished only;
- the end of a WebSocket, whatever it was: nobody. The server closes the connection first (RFC 6455, 7.1.1),
  and Envoy flags that as broken. Its opening has an entry of its own, and counts as an answer;
- what Envoy answered by itself, without a host: nobody;
- a pick that was tried first and not served by: the picked host, unless that may have been for a 4xx.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_FLAGS: Final = frozenset(("UF", "UC", "UR", "LR", "UT", "UPE"))
"""Envoy's flags of a connection or exchange with the host that failed."""
CLIENT_FLAGS: Final = frozenset(("DC", "DR"))
"""The client has gone."""
SWITCHED: Final = 101
"""Of every upgrade that was taken, also where client or engine speak HTTP/2, in which it is 200."""


@dataclass(frozen=True, slots=True)
class Finished:
    """One request that has ended, as an Envoy saw it."""

    address: str
    """The endpoint that served it, or failed to at the last; empty: none was reached."""
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
    """What ext_proc noted of its decision."""
    sent_seconds: float | None = None
    """From the start to the first byte sent to the host, in the last attempt."""
    over_http1: bool = False
    """Whether it went by the cluster that speaks HTTP/1.1 to a pool that speaks HTTP/2 else."""
    session: int | None = None
    """Hash of the session that it named, good in this process; None: it named none. Envoy keeps the requests
    of a session that have no pick on one endpoint."""
    handshake: bool = False
    """Whether it came by the route of WebSocket handshakes."""
    established: bool = False
    """A WebSocket has opened, and goes on: no end. That comes as another one, of status 101."""

    @property
    def aborted(self) -> bool:
        """Whether the client went away."""
        return not CLIENT_FLAGS.isdisjoint(self.flags)

    @property
    def faulty(self) -> bool:
        """Whether the host that was reached is to blame."""
        if self.aborted or self.status == SWITCHED:
            return False
        return not HOST_FLAGS.isdisjoint(self.flags) or (
            self.status >= 500 and self.first_byte_seconds is not None
        )

    @property
    def elsewhere_seconds(self) -> float | None:
        """What passed with attempts that failed before the last one; None: unknown."""
        return self.sent_seconds if self.attempts > 1 else 0.0

    @property
    def retried_away(self) -> bool:
        """Whether the pick was tried and somebody else served in the end."""
        return self.attempts > 1 and bool(self.picked) and self.picked != self.address
