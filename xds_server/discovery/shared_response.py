"""Responses that streams share: one comparison, one nonce and one serialisation for all equal streams.

Rule
    A stream is clean under a snapshot when the client has, or is about to read, all its subscribed
    resources: no response, held type or removal waits. If a newer snapshot differs in endpoints alone, and
    removes none of them, a clean stream needs no rule of `ordering.py`: no cluster warms, nothing
    waits, nothing is removed. Its next response follows from three values: the versions of the
    endpoints before and after, which are hashes of content, and the subscribed names. So it is computed
    once, as a `SharedResponse`, and every stream with the same three values writes the same bytes.
    All other changes go through the ordering, and the stream is clean again when no change is left.
Nonce
    Streams share a response's nonce, which never repeats on one of them: shared responses are numbered,
    and a stream takes only one with a higher number than its last. If content changes back and forth,
    the old response is therefore made again.
ACK
    Most clients send equal bytes as the plain ACK of a shared response, since they list the same names. The
    first stream that decodes one remembers it there, and the others recognise it without decoding.
Bounds
    The newest responses and bodies are cached, bounded by number and by bytes. A dropped one is made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import SERVED_TYPES, TYPE_ENDPOINT
from xds_server.discovery.changes import Sent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from xds_server.discovery.subscription import Key, Subscription
    from xds_server.snapshot.snapshot import Resource, Snapshot

    Compose = Callable[[str, str, Sequence[Resource], Sequence[str]], bytes]
    """Type URL, its version, resources and removed names to a response without nonce."""

_MAX_CACHED: Final = 64
_MAX_CACHED_BYTES: Final = 16 * 1024 * 1024
_MAX_REQUESTS: Final = 128
_MAX_REQUEST_BYTES: Final = 32 * 1024
_MAX_REQUESTS_BYTES: Final = 1024 * 1024
_OTHER_TYPES: Final = tuple(type_url for type_url in SERVED_TYPES if type_url != TYPE_ENDPOINT)

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Response:
    """A response of either variant as it is written."""

    type_url: str
    version: str
    """Of the type, as in the response."""
    data: bytes


@dataclass(slots=True)
class SharedResponse:
    """From one version of the endpoints to another, for all streams with the same subscribed names."""

    number: int
    nonce: str
    sent: Sent
    response: Response | None
    """None: no subscribed resource changed."""
    ack: bytes | None = None
    """A plain ACK of the response, once a client has sent one."""

    def remember_ack(self, ack: bytes) -> None:
        """Keep the bytes of a plain ACK of this response."""
        if len(ack) <= _MAX_REQUEST_BYTES:
            self.ack = ack


class _BoundedCache(Generic[K, V]):
    """The newest values, bounded by number and by bytes; the very newest is always kept."""

    def __init__(self, most: int = _MAX_CACHED, most_bytes: int = _MAX_CACHED_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._entries: dict[K, tuple[V, int]] = {}
        self._bytes = 0

    def get(self, key: K) -> V | None:
        """Return the cached value; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Cache a value and drop the oldest ones to make room."""
        self._drop(key)
        while self._entries and (len(self._entries) >= self._most or self._bytes + size > self._most_bytes):
            self._drop(next(iter(self._entries)))
        self._entries[key] = (value, size)
        self._bytes += size

    def _drop(self, key: K) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._bytes -= size


class SharedResponseCache:
    """Shared responses and bodies of one variant. `name` begins each nonce and is unique in the process."""

    def __init__(self, compose: Compose, name: str) -> None:
        self._compose = compose
        self._name = name
        self._number = 0
        self._responses: _BoundedCache[tuple[str, str, Key], SharedResponse] = _BoundedCache()
        self._bodies: _BoundedCache[tuple[str, str, tuple[str, ...]], bytes] = _BoundedCache()

    def body(
        self, type_url: str, version: str, resources: Sequence[Resource], removed: Sequence[str]
    ) -> bytes:
        """Return a response without nonce; `version` must stand for the content of all `resources`.

        A body with removed names is not cached: a client may have chosen them.
        """
        if removed:
            return self._compose(type_url, version, resources, removed)
        key = (type_url, version, tuple([resource.name for resource in resources]))
        body = self._bodies.get(key)
        if body is None:
            body = self._compose(type_url, version, resources, removed)
            self._bodies.put(key, body, len(body))
        return body

    def between(
        self, endpoints: Subscription, before: str, snapshot: Snapshot, number: int
    ) -> SharedResponse | None:
        """Return the response that brings a subscription settled at version `before` to `snapshot`.

        `number` is that of the stream's last shared response. None: the change needs the ordering.
        """
        version = snapshot.version(TYPE_ENDPOINT)
        key = (before, version, endpoints.key)
        cached = self._responses.get(key)
        if cached is not None and (cached.number > number or cached.response is None):
            return cached
        changes = endpoints.changes(snapshot)
        if changes.gone or changes.missing:
            return None
        self._number += 1
        nonce = f"{self._name}-{self._number}"
        response = None
        if changes.changed:
            body = self.body(TYPE_ENDPOINT, version, changes.changed, ())
            response = Response(TYPE_ENDPOINT, version, body + nonce_field(nonce))
        sent = Sent(version, {resource.name: resource.version for resource in changes.changed})
        shared = SharedResponse(self._number, nonce, sent, response)
        self._responses.put(key, shared, 0 if response is None else len(response.data))
        return shared


def only_endpoints_differ(one: Snapshot, other: Snapshot) -> bool:
    """Whether the other types are the same in both."""
    ours, others = one.versions, other.versions
    for type_url in _OTHER_TYPES:  # noqa: SIM110 - once a push and stream: a generator would be slower
        if ours.get(type_url) != others.get(type_url):
            return False
    return True


def nonce_field(nonce: str) -> bytes:
    """Return the bytes that add a nonce to a serialised response of either variant: both have it as field 5.

    Two concatenated messages parse as one with the fields of both.
    Source: protobuf's page "Encoding", section "Last One Wins".
    """
    return bytes(discovery_pb2.DiscoveryResponse(nonce=nonce).SerializeToString())


def cached_decoder(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return `decode` with a cache of small messages: Envoys of a fleet send equal ones.

    Callers share the results and must not change them. Requests with a node or a NACK are not cached: few
    are equal, and an object may take fifty times its bytes.
    """
    cache: _BoundedCache[bytes, Any] = _BoundedCache(_MAX_REQUESTS, _MAX_REQUESTS_BYTES)

    def decoded(message: bytes) -> Any:
        if len(message) > _MAX_REQUEST_BYTES:
            return decode(message)
        request = cache.get(message)
        if request is None:
            request = decode(message)
            if not (request.HasField("node") or request.HasField("error_detail")):
                cache.put(message, request, len(message))
        return request

    return decoded
