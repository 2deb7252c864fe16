"""Logs Envoys that connect and leave, and warns if none connects. Single-threaded.

A node counts once, over all its streams. When a whole fleet reconnects, the first Envoys get a line each,
and one line has the number of the others.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from xds_server.discovery.status import DiscoveryObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from xds_server.discovery.client import Client

logger = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 10.0
MOST_LINES: Final = 20
"""In one period."""
MISSED_AFTER_SECONDS: Final = 15.0
"""Running Envoys reconnect within a few seconds."""
_MOST_CHARS: Final = 100


class Arrivals(DiscoveryObserver):
    """The connected nodes. `address` is the listening address; `clock` is in seconds."""

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._streams: dict[tuple[str, str], int] = {}
        self._period_until = 0.0
        self._lines = 0
        self._more = [0, 0]
        """Nodes that have connected and left in this period without a line of their own."""
        self._missed_at: float | None = None
        """Time of the warning that no Envoy has connected; None: not started, or no longer needed."""
        self._waits = True

    @property
    def connected(self) -> int:
        """Number of nodes with an open stream."""
        return len(self._streams)

    def opened(self, client: Client, peer: str) -> None:
        """Count a new stream; `peer` as gRPC names it."""
        self._waits, self._missed_at = False, None
        key = client.node_id, client.cluster
        streams = self._streams[key] = self._streams.get(key, 0) + 1
        if streams == 1 and self._may_log(opened=True):
            logger.info(
                "Envoy %s has connected from %s: %d connected", _named(client), _from(peer), self.connected
            )

    def closed(self, client: Client, type_urls: Collection[str]) -> None:  # noqa: ARG002 - of all types
        """Count the end of a stream."""
        key = client.node_id, client.cluster
        if key not in self._streams:
            return
        self._streams[key] -= 1
        if self._streams[key]:
            return
        del self._streams[key]
        if self._may_log(opened=False):
            logger.info("Envoy %s has left: %d connected", _named(client), self.connected)

    def look(self) -> None:
        """Log the lines whose time has come; to be called regularly while Envoys are served."""
        now = self._clock()
        self._sum_up(now)
        if not self._waits:
            return
        if self._missed_at is None:
            self._missed_at = now + MISSED_AFTER_SECONDS
        elif now >= self._missed_at:
            self._waits = False
            logger.warning(
                "no Envoy has connected to xds.address %s in %g s: start Envoy with what `warmroute"
                " bootstrap` prints, or see its log; a gateway with a configuration of its own needs none",
                self._address,
                MISSED_AFTER_SECONDS,
            )

    def _may_log(self, *, opened: bool) -> bool:
        """Return whether a line may be logged now; otherwise count it for the summary."""
        now = self._clock()
        self._sum_up(now)
        if now >= self._period_until:
            self._period_until, self._lines = now + PERIOD_SECONDS, 0
        self._lines += 1
        if self._lines <= MOST_LINES:
            return True
        self._more[0 if opened else 1] += 1
        return False

    def _sum_up(self, now: float) -> None:
        if now >= self._period_until and any(self._more):
            logger.info(
                "%d more Envoys have connected and %d more have left: %d connected",
                *self._more,
                self.connected,
            )
            self._more = [0, 0]


def _named(client: Client) -> str:
    cluster = client.cluster[:_MOST_CHARS] or "without a name"
    return f"{client.node_id[:_MOST_CHARS]} (cluster {cluster})"


def _from(peer: str) -> str:
    kind, _, rest = unquote(peer).partition(":")
    return "the Unix socket" if kind == "unix" else rest[:_MOST_CHARS]
