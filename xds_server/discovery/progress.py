"""The lag of each client: the times of its last answers and of its oldest pending response.

Lag
    Seconds since the oldest response that the client's newest ACK does not cover; 0 when the newest
    response is ACKed. A NACK is no ACK: a client that refuses a version lags until it ACKs another one. None:
    the client has ACKed everything before the response that is being written, so its lag has no start yet.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from xds_server.discovery.status import DiscoveryObserver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fleet.endpoint import Locality
    from xds_server.discovery.client import Client
    from xds_server.discovery.status import ClientStatus, TypeStatus

State = Literal["not_sent", "stale", "error", "synced"]
"""In CSDS's terms: stale is sent without an answer, error is NACKed."""

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
    """The answers of one node for one type."""

    acked: str = ""
    acked_at: float | None = None
    nacked_at: float | None = None
    waiting: list[tuple[str, float]] = field(default_factory=list)
    """Version and time of the responses without ACK, oldest first."""


_NONE: Final = _Answers()


class Progress(DiscoveryObserver):
    """Records the times of responses and answers.

    Bounded: beyond `max_clients` nodes the least recently active ones are dropped. `clock` is for
    durations, `wall` (Unix seconds) for displayed times.
    """

    def __init__(
        self,
        max_clients: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._max_entries = max_clients * _TYPES
        self._clock = clock
        self._wall = wall
        self._answers: OrderedDict[tuple[str, str, str], _Answers] = OrderedDict()

    def pushed(self, client: Client, type_url: str, version: str) -> None:
        """Record a response."""
        answers = self._of(client, type_url)
        # An ACK can arrive before `pushed` is called for its response.
        if version != answers.acked or answers.waiting:
            if len(answers.waiting) >= _MAX_WAITING:
                del answers.waiting[1]  # The oldest one has the start of the lag.
            answers.waiting.append((version, self._clock()))

    def acked(self, client: Client, type_url: str, version: str) -> None:
        """Record an ACK, which covers all earlier responses."""
        answers = self._of(client, type_url)
        answers.acked, answers.acked_at = version, self._wall()
        for index, (sent, _) in enumerate(answers.waiting):
            if sent == version:
                del answers.waiting[: index + 1]
                break

    def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:  # noqa: ARG002
        """Record a NACK."""
        self._of(client, type_url).nacked_at = self._wall()

    def longest_lag(self, pending: Iterable[tuple[str, str, str]]) -> float:
        """Return the longest of these lags, by node id, cluster and type; 0 if none has a start."""
        waiting = (answers.waiting for key in pending if (answers := self._answers.get(key)) is not None)
        since = min((entries[0][1] for entries in waiting if entries), default=None)
        return 0.0 if since is None else self._clock() - since

    def _of(self, client: Client, type_url: str) -> _Answers:
        key = (client.node_id, client.cluster, type_url)
        answers = self._answers.get(key)
        if answers is None:
            answers = self._answers[key] = _Answers()
            if len(self._answers) > self._max_entries:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(key)
        return answers

    def of(self, status: ClientStatus) -> ClientProgress:
        """Add times and lag to the status of a connected client."""
        now = self._clock()
        types = tuple(
            _type(entry, self._answers.get((status.node_id, status.cluster, entry.type_url), _NONE), now)
            for entry in status.types
        )
        lags = [entry.lag_seconds for entry in types]
        measured = [lag for lag in lags if lag is not None]
        return ClientProgress(
            node_id=status.node_id,
            cluster=status.cluster,
            locality=status.locality,
            variant=status.variant,
            streams=status.streams,
            lag_seconds=max(measured, default=0.0) if len(measured) == len(lags) else None,
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
        # It has the newest version, and still refuses another resource.
        return "error" if status.version_nacked else "synced"
    return "error" if status.version_sent == status.version_nacked else "stale"
