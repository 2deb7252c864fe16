"""What streams share of a push: one comparison, one nonce and one serialisation for all that are alike.

Rule
    A stream is clean under a snapshot when the client has, or is about to read, everything that it
    asked for of it: nothing is due, held or lingering. From there, a newer snapshot that differs in
    endpoints alone, and takes none of them away, needs no rule of `variant.py`: no cluster warms, nothing
    waits, nothing goes. What such a stream must be told follows from three values: the versions of the
    endpoints before and after, which are hashes of content, and what the client asked for. So it is worked
    out once, as a `Plan`, and every stream with the same three writes the same bytes.
    Everything else goes by the rules, and the stream is clean again when they have nothing more to say.
Nonce
    A plan's nonce is shared by streams, and never repeats on one of them: plans are numbered as they are
    made, and a stream takes only one with a higher number than it took before. Where content went back
    and forth, the old plan is therefore made anew.
ACK
    The plain ACKs of a plan are equal bytes at most clients, since those list the same names. A stream that
    has decoded one tells the plan, and the others know it without decoding.
Bounds
    Plans and bodies are kept by number and by bytes, the newest ones. One that is gone is made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.names import SERVED_TYPES, TYPE_ENDPOINT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from xds_server.discovery.subscription import Key, Subscription
    from xds_server.snapshot.snapshot import Resource, Snapshot

    Compose = Callable[[str, str, Sequence[Resource], Sequence[str]], bytes]
    """Type URL, its version, resources and removed names to a response without nonce."""

_MAX_KEPT: Final = 64
_MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
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
    """Of the type, as the client hears it."""
    data: bytes


@dataclass(slots=True)
class Plan:
    """From one version of the endpoints to another, for all who asked for the same."""

    number: int
    version: str
    given: Mapping[str, str]
    """Name to version of what the response brings."""
    nonce: str
    response: Response | None
    """None: what changed is not what these clients asked for."""
    ack: bytes | None = None
    """A plain ACK of the response, once a client has sent one."""

    def learn(self, ack: bytes) -> None:
        """Remember a message that did nothing but ACK this plan's response."""
        if len(ack) <= _MAX_REQUEST_BYTES:
            self.ack = ack


class _Kept(Generic[K, V]):
    """The newest values, at most so many and so large together; the very newest always."""

    def __init__(self, most: int = _MAX_KEPT, most_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._held: dict[K, tuple[V, int]] = {}
        self._bytes = 0

    def get(self, key: K) -> V | None:
        """Return what is kept."""
        held = self._held.get(key)
        return None if held is None else held[0]

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value, and let the oldest go for it."""
        self._drop(key)
        while self._held and (len(self._held) >= self._most or self._bytes + size > self._most_bytes):
            self._drop(next(iter(self._held)))
        self._held[key] = (value, size)
        self._bytes += size

    def _drop(self, key: K) -> None:
        _, size = self._held.pop(key, (None, 0))
        self._bytes -= size


class Plans:
    """Plans and bodies of one variant. `name` begins each nonce: no other in the process may share it."""

    def __init__(self, compose: Compose, name: str) -> None:
        self._compose = compose
        self._name = name
        self._number = 0
        self._plans: _Kept[tuple[str, str, Key], Plan] = _Kept()
        self._bodies: _Kept[tuple[str, str, tuple[str, ...]], bytes] = _Kept()

    def body(
        self, type_url: str, version: str, resources: Sequence[Resource], removed: Sequence[str]
    ) -> bytes:
        """Return a response without nonce; `version` must stand for the content of all `resources`.

        One that tells of removed names is not kept: a client may have chosen them.
        """
        if removed:
            return self._compose(type_url, version, resources, removed)
        key = (type_url, version, tuple([resource.name for resource in resources]))
        found = self._bodies.get(key)
        if found is None:
            found = self._compose(type_url, version, resources, removed)
            self._bodies.put(key, found, len(found))
        return found

    def step(self, endpoints: Subscription, before: str, snapshot: Snapshot, number: int) -> Plan | None:
        """Return how endpoints that are settled at version `before` come to `snapshot`.

        `number` is that of the newest plan that the stream took. None: by the rules.
        """
        version = snapshot.version(TYPE_ENDPOINT)
        key = (before, version, endpoints.key)
        plan = self._plans.get(key)
        if plan is not None and (plan.number > number or plan.response is None):
            return plan
        changes = endpoints.changes(snapshot)
        if changes.gone or changes.missing:
            return None
        self._number += 1
        nonce = f"{self._name}-{self._number}"
        response = None
        if changes.changed:
            body = self.body(TYPE_ENDPOINT, version, changes.changed, ())
            response = Response(TYPE_ENDPOINT, version, body + nonce_field(nonce))
        given = {resource.name: resource.version for resource in changes.changed}
        plan = Plan(self._number, version, given, nonce, response)
        self._plans.put(key, plan, 0 if response is None else len(response.data))
        return plan


def only_endpoints_differ(one: Snapshot, other: Snapshot) -> bool:
    """Whether the other types are the same in both."""
    held, wanted = one.versions, other.versions
    for type_url in _OTHER_TYPES:  # noqa: SIM110 - once a push and stream: a generator costs more than it says
        if held.get(type_url) != wanted.get(type_url):
            return False
    return True


def nonce_field(nonce: str) -> bytes:
    """Return what adds a nonce to a serialised response of either variant: both have it as field 5.

    Messages that are serialised one after the other read as one that has the fields of both.
    Source: protobuf's page "Encoding", section "Last One Wins".
    """
    return bytes(discovery_pb2.DiscoveryResponse(nonce=nonce).SerializeToString())


def remembering(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return `decode` with a memory for small messages: Envoys of a fleet say the same.

    What it returns is shared: to be read only. What says who the client is, or what it refuses, is not
    remembered: few say the same, and as objects it may take fifty times its bytes.
    """
    kept: _Kept[bytes, Any] = _Kept(_MAX_REQUESTS, _MAX_REQUESTS_BYTES)

    def decoded(message: bytes) -> Any:
        if len(message) > _MAX_REQUEST_BYTES:
            return decode(message)
        request = kept.get(message)
        if request is None:
            request = decode(message)
            if not (request.HasField("node") or request.HasField("error_detail")):
                kept.put(message, request, len(message))
        return request

    return decoded
