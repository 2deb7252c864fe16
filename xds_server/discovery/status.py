"""Versions that each client was sent, ACKed and NACKed; their counters and their observers."""

from __future__ import annotations

import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge

from fleet.names import SERVED_TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from prometheus_client import CollectorRegistry

    from fleet.endpoint import Locality
    from xds_server.discovery.changes import Answer
    from xds_server.discovery.client import Client
    from xds_server.discovery.stream_state import StreamState
    from xds_server.discovery.subscription import Subscription

logger = logging.getLogger(__name__)

_MAX_REMEMBERED: Final = 1024


class DiscoveryObserver:
    """Receives the events of streams, on the event loop: it must not block. Here none has an effect."""

    def opened(self, client: Client, peer: str) -> None:
        """The first message of a stream named its node; `peer` as gRPC names the address."""

    def pushed(self, client: Client, type_url: str, version: str) -> None:
        """A response was handed to the transport."""

    def acked(self, client: Client, type_url: str, version: str) -> None:
        """The client ACKed a response."""

    def nacked(self, client: Client, type_url: str, version: str, message: str) -> None:
        """The client NACKed a response and kept its earlier version."""

    def closed(self, client: Client, type_urls: Collection[str]) -> None:
        """A stream with subscriptions to these types has ended."""


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """One type at one client. An empty version: none yet."""

    type_url: str
    version_sent: str
    version_acked: str
    version_nacked: str
    """Of the newest NACK that no ACK has followed, or whose resource the client still refuses."""
    error: str


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """One node, over all its streams; of a type on several streams the newest stream counts."""

    node_id: str
    cluster: str
    locality: Locality
    variant: str
    streams: int
    types: tuple[TypeStatus, ...]


def newest_subscriptions(streams: Iterable[StreamState]) -> dict[str, Subscription]:
    """Return the subscriptions of one node by type, from its streams, the oldest first."""
    return {type_url: entry for stream in streams for type_url, entry in stream.subscriptions.items()}


def status_of(streams: Sequence[StreamState]) -> ClientStatus:
    """Sum up the streams of one node, the oldest first."""
    newest, subscriptions = streams[-1], newest_subscriptions(streams)
    assert newest.client is not None
    types = tuple(
        TypeStatus(type_url, entry.sent_version, entry.acked_version, entry.nacked_version, entry.error)
        for type_url, entry in ((kind, subscriptions.get(kind)) for kind in SERVED_TYPES)
        if entry is not None
    )
    client = newest.client
    return ClientStatus(client.node_id, client.cluster, client.locality, newest.name, len(streams), types)


class DiscoveryMetrics:
    """The service's counters; those by type have one child a type URL."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Create them in `registry`.

        Raises:
            ValueError: the registry has them already.
        """

        def by_type(name: str, text: str) -> Mapping[str, Counter]:
            counter = Counter(f"warmroute_xds_{name}", text, ["type"], registry=registry)
            return {type_url: counter.labels(type_url.rpartition(".")[2]) for type_url in SERVED_TYPES}

        def plain(name: str, text: str) -> Counter:
            return Counter(f"warmroute_xds_{name}", text, registry=registry)

        self.pushes = by_type("pushes", "Discovery responses written")
        self.acks = by_type("acks", "Responses that clients took")
        self.nacks = by_type("nacks", "Responses that clients refused")
        self.streams = Gauge("warmroute_xds_streams", "Discovery streams open", registry=registry)
        self.rejected = plain("streams_rejected", "Streams refused: too many, or draining")
        self.delayed = plain("streams_delayed", "Streams whose first response waited for its turn")
        self.peer_errors = plain("peer_errors", "Streams ended because the client broke the protocol")
        self.unserved = plain("unserved_requests", "Requests for types that nobody serves here, unanswered")
        self.faults = plain("faults", "Streams ended by a fault of our own")


class Record:
    """Counts, logs and passes on the events of the streams."""

    def __init__(self, observers: Sequence[DiscoveryObserver], metrics: DiscoveryMetrics) -> None:
        self.metrics = metrics
        self._observers = observers
        self._logged: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def opened(self, client: Client, peer: str) -> None:
        """Pass on that a stream has named its node."""
        for observer in self._observers:
            observer.opened(client, peer)

    def pushed(self, client: Client, type_url: str, version: str) -> None:
        """Count a response that was handed to the transport."""
        self.metrics.pushes[type_url].inc()
        for observer in self._observers:
            observer.pushed(client, type_url, version)

    def closed(self, client: Client, type_urls: Collection[str]) -> None:
        """Pass on the end of a stream."""
        for observer in self._observers:
            observer.closed(client, type_urls)

    def answered(self, client: Client, answer: Answer) -> None:
        """Count an ACK or NACK; a NACK is logged once per content, not once per client."""
        if answer.error is None:
            self.metrics.acks[answer.type_url].inc()
            for observer in self._observers:
                observer.acked(client, answer.type_url, answer.version)
            return
        self.metrics.nacks[answer.type_url].inc()
        for observer in self._observers:
            observer.nacked(client, answer.type_url, answer.version, answer.error)
        content = (answer.type_url, answer.version, answer.name)
        if content in self._logged:
            return
        self._logged[content] = None
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.popitem(last=False)
        logger.error(
            "Envoy %s refuses %s%s at version %s and keeps what it had: %s",
            client.node_id,
            answer.type_url,
            f" {answer.name}" if answer.name else "",
            answer.version,
            answer.error,
        )
