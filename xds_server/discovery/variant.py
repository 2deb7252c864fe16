"""Rules over the types of one stream, shared by SotW and delta.

Order
    Make before break: clusters, their endpoints, listeners, routes; then what takes clusters and
    endpoints away, once listeners and routes no longer name them.
Warming
    Envoy warms a cluster that is new or changed and wants its assignment again, even an identical
    one. So a response that adds or changes a cluster makes its assignment due, once. Only a change
    of content does that: a NACK, or a cluster that the client already had, does not.
Holding
    Listeners and routes wait until the client has answered the clusters sent before them and was
    given the new clusters' assignments, or they would send requests to a cluster that is still
    warming. `release` ends the wait, for clients that never answer: the loop calls it after a
    bounded time.
Lingering
    A request that was routed to a cluster may still be on its way to it: it waits for its body or its
    pick, and fails if the cluster is gone when that comes. So clusters and their endpoints are taken
    away only at `let_go`, which the loop calls some time after the last listener or route was sent.
Newest state
    Responses are computed one at a time, when they can be written. A slow client skips what lies
    between; nothing is queued for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from envoy.config.cluster.v3 import cluster_pb2

from fleet.endpoint import Locality
from fleet.errors import PeerError
from fleet.names import RESOURCE_TYPES, TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE
from xds_server.discovery.subscription import Answer, Changes, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from xds_server.snapshot.snapshot import Resource, Snapshot

Request = TypeVar("Request")
Response = TypeVar("Response")

_REFERRED: Final = (TYPE_CLUSTER, TYPE_ENDPOINT)
_REFERRING: Final = (TYPE_LISTENER, TYPE_ROUTE)
DEFAULT_MAX_NAMES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Client:
    """Who is at the other end of a stream, as its first message says."""

    node_id: str
    cluster: str
    locality: Locality


class Variant(ABC, Generic[Request, Response]):
    """One stream as a state machine: requests and snapshots in, responses out, no I/O.

    `next_nonce` must never repeat. `only_type` is the type of a separate service; None is ADS.
    Without `lingers` nothing waits for `let_go`.
    """

    name: str

    def __init__(
        self,
        next_nonce: Callable[[], str],
        *,
        only_type: str | None = None,
        max_names: int = DEFAULT_MAX_NAMES,
        lingers: bool = False,
    ) -> None:
        self.client: Client | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self._next_nonce = next_nonce
        self._only_type = only_type
        self._max_names = max_names
        self._snapshot: Snapshot | None = None
        self._warming: set[str] = set()
        self._released = False
        self._lingers = lingers
        self._let_go = not lingers
        self.unserved_requests = 0

    def on_request(self, request: Request) -> list[Response]:
        """Take a request; return every response that is due now.

        Raises:
            PeerError: the request breaks the protocol.
        """
        self.receive(request)
        return self._drain()

    def on_snapshot(self, snapshot: Snapshot) -> list[Response]:
        """Take the newest snapshot; return every response that is due now."""
        self._snapshot = snapshot
        return self._drain()

    def receive(self, request: Request) -> Answer | None:
        """Take a request without computing responses; return the ACK or NACK it carries.

        Raises:
            PeerError: the request breaks the protocol.
        """
        if self.client is None:
            self.client = _client(request)
        type_url = self._type_of(request)
        if type_url is None:
            return None
        subscription = self.subscriptions.get(type_url)
        if subscription is None:
            subscription = Subscription(type_url, max_names=self._max_names)
            self._begin(subscription, request)
            self.subscriptions[type_url] = subscription
            return None
        return self._continue(subscription, request)

    def next_response(self, snapshot: Snapshot | None) -> Response | None:
        """Compute the first response that is due under `snapshot`; None when the client is up to date."""
        self._snapshot = snapshot
        if snapshot is None:
            return None
        break_later = not self._let_go or self._refers_later(snapshot)
        hold = self._must_hold(snapshot)
        for type_url in RESOURCE_TYPES:
            subscription = self.subscriptions.get(type_url)
            if subscription is None or (hold and type_url in _REFERRING):
                continue
            changes = subscription.changes(snapshot)
            if break_later and type_url in _REFERRED:
                changes = changes.without_removals()
            if not changes and not subscription.owed:
                continue
            response = self._respond(subscription, changes, snapshot)
            # Nothing to say means it is recorded now, and what waited for it may go.
            return self.next_response(snapshot) if response is None else response
        if self._lingers and not self._takes_away(snapshot):
            self._let_go = False
        return None

    def holding(self) -> bool:
        """Whether listeners or routes wait for the client to take up its clusters."""
        snapshot = self._snapshot
        if snapshot is None or not self._must_hold(snapshot):
            return False
        return self._refers_later(snapshot)

    def release(self) -> None:
        """End the wait of listeners and routes until the next change of clusters."""
        self._released = True

    def lingering(self) -> bool:
        """Whether nothing but `let_go` keeps clusters or endpoints that are no more."""
        snapshot = self._snapshot
        if snapshot is None or self._let_go or self._refers_later(snapshot):
            return False
        return self._takes_away(snapshot)

    def let_go(self) -> None:
        """Take away what lingers now."""
        self._let_go = True

    def note_given(self, type_url: str, resources: Iterable[Resource], *, fresh: bool) -> None:
        """Follow what a response means for other types; call before `record`.

        `fresh`: the client did not hold exactly these resources from an earlier stream.
        """
        if type_url == TYPE_ENDPOINT:
            self._warming.difference_update(resource.name for resource in resources)
        if type_url != TYPE_CLUSTER:
            return
        self._released = False
        if not fresh:
            return
        clusters, endpoints = (self.subscriptions.get(kind) for kind in _REFERRED)
        assert clusters is not None
        for resource in resources:
            if clusters.given.get(resource.name) == resource.version:
                continue
            name = assignment_name(resource.body.value)
            if name is None:
                continue
            if endpoints is not None or not clusters.owed:
                # On the first response of a stream without endpoints Envoy waits by itself.
                self._warming.add(name)
            if endpoints is not None and endpoints.covers(name):
                endpoints.due.add(name)

    def _must_hold(self, snapshot: Snapshot) -> bool:
        clusters = self.subscriptions.get(TYPE_CLUSTER)
        if clusters is None or self._released:
            return False
        if clusters.outstanding:
            return True
        self._warming &= snapshot.of_type(TYPE_ENDPOINT).keys()
        return bool(self._warming)

    def _refers_later(self, snapshot: Snapshot) -> bool:
        return any(self._pending(type_url, snapshot) for type_url in _REFERRING)

    def _takes_away(self, snapshot: Snapshot) -> bool:
        held = (self.subscriptions.get(type_url) for type_url in _REFERRED)
        return any(entry is not None and bool(entry.changes(snapshot).gone) for entry in held)

    def _pending(self, type_url: str, snapshot: Snapshot) -> bool:
        subscription = self.subscriptions.get(type_url)
        return subscription is not None and (subscription.owed or bool(subscription.changes(snapshot)))

    def _drain(self) -> list[Response]:
        responses = []
        while (response := self.next_response(self._snapshot)) is not None:
            responses.append(response)
        return responses

    def _type_of(self, request: Any) -> str | None:
        """Return the type that a request is about; None for one that this ADS does not serve.

        Such a request stays unanswered: an Envoy that also asks for secrets or runtime values here must
        not lose its clusters over it.
        """
        type_url: str = request.type_url or self._only_type or ""
        if type_url in RESOURCE_TYPES and self._only_type in (None, type_url):
            return type_url
        if self._only_type is None and type_url:
            self.unserved_requests += 1
            return None
        allowed = ", ".join(RESOURCE_TYPES if self._only_type is None else (self._only_type,))
        raise PeerError(f"type_url {type_url[:200]!r} is not served here, allowed: {allowed}")

    @abstractmethod
    def _begin(self, subscription: Subscription, request: Request) -> None:
        """Take the first request of a type."""

    @abstractmethod
    def _continue(self, subscription: Subscription, request: Request) -> Answer | None:
        """Take a later request of a type."""

    @abstractmethod
    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Response | None:
        """Make the response for `changes` and record it; None if there is nothing to say after all."""


@lru_cache(maxsize=1024)
def assignment_name(cluster: bytes) -> str | None:
    """Name of the endpoint resource that a serialised cluster waits for; None if it needs none."""
    message = cluster_pb2.Cluster.FromString(cluster)
    if message.type != cluster_pb2.Cluster.EDS:
        return None
    return str(message.eds_cluster_config.service_name or message.name)


def error_of(request: Any) -> str | None:
    """The text of a NACK; None for everything else."""
    if not request.HasField("error_detail"):
        return None
    return str(request.error_detail.message) or f"code {request.error_detail.code}"


def _client(request: Any) -> Client:
    node = request.node
    if not node.id:
        raise PeerError("the first message of a stream must carry a node with an id")
    where = node.locality
    return Client(node.id, node.cluster, Locality(where.region, where.zone, where.sub_zone))
