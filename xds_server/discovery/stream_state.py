"""One stream as a state machine, shared by SotW and delta: messages and snapshots in, responses out.

Order
    The order of the types of a stream: `ordering.py`. One type: `subscription.py`.
Newest state
    Responses are computed one at a time, when they can be written. A slow client skips intermediate
    snapshots; nothing is queued for it.
Shared responses
    At a client that has everything else, a change of weights needs no ordering: `shared_response.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from fleet.errors import PeerError
from fleet.names import SERVED_TYPES, TYPE_ENDPOINT
from xds_server.discovery.bounds import check_size
from xds_server.discovery.changes import ABSENT, Changes, Sent
from xds_server.discovery.client import Client, client_of
from xds_server.discovery.ordering import ResourceOrdering
from xds_server.discovery.shared_response import (
    Response,
    SharedResponse,
    SharedResponseCache,
    nonce_field,
    only_endpoints_differ,
)
from xds_server.discovery.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from xds_server.discovery.changes import Answer
    from xds_server.snapshot.snapshot import Resource, Snapshot

_NO_RESPONSE: Final = SharedResponse(0, "", Sent("", {}), None)
"""For streams without endpoints."""
DEFAULT_MAX_NAMES: Final = 20_000
MAX_STREAM_BYTES: Final = 16 * 1024 * 1024
"""Of names: 20,000 of 100 characters each, of two types, with the initial versions that a client reports."""
MAX_ALL_BYTES: Final = 768 * 1024 * 1024


class NameBudget:
    """Bytes of names of all streams."""

    def __init__(self, stream_bytes: int = MAX_STREAM_BYTES, all_bytes: int = MAX_ALL_BYTES) -> None:
        self._stream_bytes = stream_bytes
        self._all_bytes = all_bytes
        self._used = 0

    def change(self, before: int, now: int) -> None:
        """Replace a stream's bytes in the count; fewer bytes are always accepted.

        Raises:
            PeerError: a stream, or all together, exceed their limit.
        """
        if now > before and (now > self._stream_bytes or self._used - before + now > self._all_bytes):
            allowed = f"allowed: {self._stream_bytes}, and {self._all_bytes} of all clients"
            raise PeerError(f"resource names that take {now} bytes; {allowed}")
        self._used += now - before


class StreamState(ABC):
    """One stream as a state machine: requests and snapshots in, responses out, no I/O.

    `next_nonce` must never repeat. `only_type` is the type of a separate service; None is ADS, with all
    types of `served`.
    Without `lingers` removals do not wait for `remove_lingering`. Without `shared_responses` nothing is
    shared with other streams, and every change goes through the ordering. `budget` covers all streams.
    """

    name: str
    name_tags: frozenset[int]
    """Of the fields of a request that carry resource names."""
    newest_only: bool
    """Whether an answer covers the earlier responses of its type."""

    def __init__(
        self,
        next_nonce: Callable[[], str],
        *,
        only_type: str | None = None,
        served: Collection[str] = SERVED_TYPES,
        max_names: int = DEFAULT_MAX_NAMES,
        lingers: bool = False,
        shared_responses: SharedResponseCache | None = None,
        budget: NameBudget | None = None,
    ) -> None:
        self.client: Client | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self._next_nonce = next_nonce
        self._only_type = only_type
        self._served = served
        self._max_names = max_names
        self._snapshot: Snapshot | None = None
        self._ordering = ResourceOrdering(self.subscriptions, lingers=lingers)
        self._shared_responses = shared_responses
        self._budget = budget or NameBudget()
        self._name_bytes = 0
        self._clean: Snapshot | None = None
        """The snapshot under which no response, held type or removal waits."""
        self._shared: SharedResponse | None = None
        """The newest response of endpoints if it was shared; None once the client has changed its names."""
        self._shared_number = 0
        self.unserved_requests = 0

    @property
    def clean(self) -> bool:
        """Whether the next response needs a new snapshot or subscription."""
        return self._clean is not None

    def clean_under(self, snapshot: Snapshot | None) -> bool:
        """Whether the client has everything of this snapshot."""
        return snapshot is not None and snapshot is self._clean

    def receive(self, message: bytes) -> Answer | None:
        """Take a serialised request without computing responses; return the ACK or NACK in it.

        Raises:
            PeerError: the bytes are no request, or it breaks the protocol.
        """
        shared = self._shared
        if shared is not None and message == shared.ack:
            return self.subscriptions[TYPE_ENDPOINT].answer(shared.nonce, None)
        try:
            check_size(message, self.name_tags, self._max_names)
            request = self.decode(message)
        except DecodeError as error:
            raise PeerError("the message is no discovery request") from error
        answer = self.receive_request(request)
        if shared is not None and shared is self._shared and self._clean is not None:
            plain = answer is not None and answer.error is None and request.response_nonce == shared.nonce
            # A message without its type has another meaning on the stream of another service.
            if plain and request.type_url == TYPE_ENDPOINT:
                shared.remember_ack(message)
        return answer

    def receive_request(self, request: Any) -> Answer | None:
        """Take a request without computing responses; return the ACK or NACK in it.

        Raises:
            PeerError: the request breaks the protocol.
        """
        if self.client is None:
            self.client = client_of(request)
        type_url = self._type_of(request)
        if type_url is None:
            return None
        subscription = self.subscriptions.get(type_url)
        if subscription is None:
            subscription = Subscription(type_url, max_names=self._max_names, newest_only=self.newest_only)
            self._begin(subscription, request)
            self.subscriptions[type_url] = subscription
            self._count_names()
            self._clean = None
            return None
        key = subscription.key
        answer = self._continue(subscription, request)
        if subscription.key != key:
            self._count_names()
            self._shared = None
        if self._clean is not None and not subscription.settled(self._clean.version(type_url)):
            self._clean = None
        return answer

    def leave(self) -> None:
        """Return the memory of the stream's names to the budget, at the end of the stream."""
        self._budget.change(self._name_bytes, 0)
        self._name_bytes = 0

    def _count_names(self) -> None:
        now = sum(subscription.name_bytes for subscription in self.subscriptions.values())
        self._budget.change(self._name_bytes, now)
        self._name_bytes = now

    def next_response(self, snapshot: Snapshot | None) -> Response | None:
        """Compute the next response under `snapshot`; None when the client is up to date."""
        self._snapshot = snapshot
        if snapshot is None or snapshot is self._clean:
            return None
        before, self._clean = self._clean, None
        if before is not None and only_endpoints_differ(before, snapshot):
            endpoints = self.subscriptions.get(TYPE_ENDPOINT)
            shared = _NO_RESPONSE if endpoints is None else self._shared_response(endpoints, before, snapshot)
            if shared is not None:
                self._clean = snapshot
                return shared.response
        response = self._ordered_response(snapshot)
        if (
            response is None
            and self._shared_responses is not None
            and not self.holding()
            and not self.lingering()
        ):
            self._clean = snapshot
        return response

    def _shared_response(
        self, endpoints: Subscription, before: Snapshot, snapshot: Snapshot
    ) -> SharedResponse | None:
        """Bring a clean stream to `snapshot` by a shared response; None: it needs the ordering."""
        assert self._shared_responses is not None
        if endpoints.nacked:
            return None  # A refused resource goes alone, which no shared response does.
        version = before.version(TYPE_ENDPOINT)
        shared = self._shared_responses.between(endpoints, version, snapshot, self._shared_number)
        if shared is None:
            return None
        self._ordering.note_shared(shared.sent.carried, snapshot)
        endpoints.record_shared(shared.sent)
        if shared.response is not None:
            endpoints.sent(shared.nonce, shared.sent)
            self._shared, self._shared_number = shared, shared.number
        return shared

    def holding(self) -> bool:
        """Whether listeners or routes wait for the client to warm its clusters."""
        return self._snapshot is not None and self._clean is None and self._ordering.holding(self._snapshot)

    def release(self) -> None:
        """End the wait of listeners and routes until the next change of clusters."""
        self._clean = None
        self._ordering.release()

    def lingering(self) -> bool:
        """Whether removals of clusters or endpoints wait only for `remove_lingering`."""
        return self._snapshot is not None and self._clean is None and self._ordering.lingering(self._snapshot)

    def remove_lingering(self) -> None:
        """Permit the removals that wait now."""
        self._clean = None
        self._ordering.remove_lingering()

    def _ordered_response(self, snapshot: Snapshot) -> Response | None:
        while (following := self._ordering.next_changes(snapshot)) is not None:
            response = self._respond(*following, snapshot)
            # Without a response the changes are recorded all the same, which may release other types.
            if response is not None:
                return response
        return None

    def _send(
        self,
        subscription: Subscription,
        version: str,
        resources: Sequence[Resource],
        gone: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> Response:
        """Make and record a response. A NACK of `missing` names costs nothing, so they are not recorded."""
        nonce, type_url = self._next_nonce(), subscription.type_url
        carried: dict[str, str] = {}
        if not (self.newest_only and subscription.full_state):
            carried = {resource.name: resource.version for resource in resources}
            carried.update(dict.fromkeys(gone, ABSENT))
        subscription.sent(nonce, Sent(version, carried))
        body = self.compose if self._shared_responses is None else self._shared_responses.body
        data = body(type_url, version, resources, (*missing, *gone)) + nonce_field(nonce)
        return Response(type_url, version, data)

    def _type_of(self, request: Any) -> str | None:
        """Return the type of a request; None for a type that this ADS does not serve.

        Such a request gets no response: an Envoy that also subscribes to secrets or runtime values here must
        not lose its clusters because of that.
        """
        type_url: str = request.type_url or self._only_type or ""
        if type_url in self._served and self._only_type in (None, type_url):
            return type_url
        if self._only_type is None and type_url:
            self.unserved_requests += 1
            return None
        allowed = ", ".join(self._served if self._only_type is None else (self._only_type,))
        raise PeerError(f"type_url {type_url[:200]!r} is not served here, allowed: {allowed}")

    @staticmethod
    @abstractmethod
    def decode(message: bytes) -> Any:
        """Parse a request; `DecodeError` if the bytes are none."""

    @staticmethod
    @abstractmethod
    def compose(type_url: str, version: str, resources: Sequence[Resource], removed: Sequence[str]) -> bytes:
        """Serialise a response without nonce."""

    @abstractmethod
    def _begin(self, subscription: Subscription, request: Any) -> None:
        """Take the first request of a type."""

    @abstractmethod
    def _continue(self, subscription: Subscription, request: Any) -> Answer | None:
        """Take a later request of a type."""

    @abstractmethod
    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Response | None:
        """Make the response for `changes` and record them; None if the variant sends none for them."""
