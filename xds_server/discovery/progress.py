"""How far behind each client is: when it answered last, and how long it has owed an answer.

Lag
    Seconds since the oldest response that the client's newest ACK does not cover; 0 when the newest
    response is ACKed. A NACK is no ACK: a client that refuses a version lags until it takes another. None:
    a response is being written to a client that has everything before it, and since when is not known.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from xds_server.discovery.status import NullObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from fleet.endpoint import Locality
    from xds_server.discovery.client import Client
    from xds_server.discovery.status import ClientStatus, DiscoveryObserver, TypeStatus

State = Literal["not_sent", "stale", "error", "synced"]
"""In CSDS's words: stale is sent without an answer, error is refused."""

_MAX_WAITING: Final = 16
_TYPES: Final = 4


@dataclass(frozen=True, slots=True)
class TypeProgress:
    """One type at one client. An empty version: none yet; a time that is None: never."""

    type_url: str
    state: State
    version_sent: str
    version_acked: str
    version_nacked: str
    """Of the newest NACK that no ACK has followed."""
    error: str
    acked_at: float | None
    """Unix seconds of the newest ACK."""
    nacked_at: float | None
    """Unix seconds of the newest NACK, also when an ACK has followed."""
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class ClientProgress:
    """One node, over all its streams."""

    node_id: str
    cluster: str
    locality: Locality
    variant: str
    streams: int
    lag_seconds: float | None
    """The longest of its types'; None if one of them is unknown."""
    types: tuple[TypeProgress, ...]


@dataclass(slots=True)
class _Answers:
    """What one node said of one type."""

    acked: str = ""
    acked_at: float | None = None
    nacked_at: float | None = None
    waiting: list[tuple[str, float]] = field(default_factory=list)
    """Version and time of the responses without ACK, oldest first."""


_NONE: Final = _Answers()


class Progress:
    """An observer that notes times; it passes on all that it hears to `following`.

    Bounded: of more than `max_clients` nodes those forgotten first were heard of longest ago. `clock` is for
    durations, `wall` (Unix seconds) for what is shown.
    """

    def __init__(
        self,
        max_clients: int,
        *,
        following: DiscoveryObserver | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._max_entries = max_clients * _TYPES
        self._following = following or NullObserver()
        self._clock = clock
        self._wall = wall
        self._held: OrderedDict[tuple[str, str, str], _Answers] = OrderedDict()

    def pushed(self, client: Client, type_url: str, version: str) -> None:
        """Note a response."""
        held = self._of(client, type_url)
        # An answer can be quicker than the note that its question was sent.
        if version != held.acked or held.waiting:
            if len(held.waiting) >= _MAX_WAITING:
                del held.waiting[1]  # The oldest says since when.
            held.waiting.append((version, self._clock()))
        self._following.pushed(client, type_url, version)

    def acked(self, client: Client, type_url: str, version: str) -> None:
        """Note an ACK, which covers whatever was sent before."""
        held = self._of(client, type_url)
        held.acked, held.acked_at = version, self._wall()
        for index, (sent, _) in enumerate(held.waiting):
            if sent == version:
                del held.waiting[: index + 1]
                break
        self._following.acked(client, type_url, version)

    def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:
        """Note a NACK."""
        self._of(client, type_url).nacked_at = self._wall()
        self._following.nacked(client, type_url, version, message)

    def left(self, client: Client, type_urls: Collection[str]) -> None:
        """Pass on the end of a stream."""
        self._following.left(client, type_urls)

    def of(self, statuses: Iterable[ClientStatus]) -> list[ClientProgress]:
        """Complete what is connected with its times, in the same order."""
        now = self._clock()
        return [self._client(status, now) for status in statuses]

    def longest_lag(self, owing: Iterable[tuple[str, str, str]]) -> float:
        """Return the longest of these lags, by node id, cluster and type; 0 if none of them is known."""
        waiting = (held.waiting for key in owing if (held := self._held.get(key)) is not None)
        since = min((entries[0][1] for entries in waiting if entries), default=None)
        return 0.0 if since is None else self._clock() - since

    def _of(self, client: Client, type_url: str) -> _Answers:
        key = (client.node_id, client.cluster, type_url)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Answers()
            if len(self._held) > self._max_entries:
                self._held.popitem(last=False)
        else:
            self._held.move_to_end(key)
        return held

    def _client(self, status: ClientStatus, now: float) -> ClientProgress:
        types = tuple(
            _type(entry, self._held.get((status.node_id, status.cluster, entry.type_url), _NONE), now)
            for entry in status.types
        )
        lags = [entry.lag_seconds for entry in types]
        known = [lag for lag in lags if lag is not None]
        return ClientProgress(
            node_id=status.node_id,
            cluster=status.cluster,
            locality=status.locality,
            variant=status.variant,
            streams=status.streams,
            lag_seconds=max(known, default=0.0) if len(known) == len(lags) else None,
            types=types,
        )


def _type(status: TypeStatus, answers: _Answers, now: float) -> TypeProgress:
    state = _state(status)
    lag: float | None = 0.0
    if status.version_sent != status.version_acked and state != "not_sent":
        lag = now - answers.waiting[0][1] if answers.waiting else None
    return TypeProgress(
        type_url=status.type_url,
        state=state,
        version_sent=status.version_sent,
        version_acked=status.version_acked,
        version_nacked=status.version_nacked,
        error=status.error,
        acked_at=answers.acked_at,
        nacked_at=answers.nacked_at,
        lag_seconds=lag,
    )


def _state(status: TypeStatus) -> State:
    if not status.version_sent:
        return "not_sent"
    if status.version_sent == status.version_acked:
        # It has what came last, and still refuses another resource.
        return "error" if status.version_nacked else "synced"
    return "error" if status.version_sent == status.version_nacked else "stale"
