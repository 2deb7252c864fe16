"""Optional time to live of endpoints: what bounds how long an Envoy uses weights of a dead server.

Rule
    With a time to live each endpoint resource carries it, and a client that hears nothing of a resource for
    so long drops it. That makes the endpoints vanish, and requests fail that stale weights would have
    served: so it is off by default.
    A heartbeat renews all that the client has taken, well before: only name, version and time to live, no
    content. It is sent once the client has answered what it was sent last, because a heartbeat of a version
    that the client does not have reads as an update without content. What a client refused does not count:
    its older version lives on. A heartbeat's answer is no answer to a version, unless it is a refusal.

State of a stream
    taken         name to the version that the client has
    _offered      nonce to what came with it, until answered
    due           whether a heartbeat is to be sent

Source: Envoy's page "xDS REST and gRPC protocol", section "TTL"; its muxes take for a heartbeat what has no
content and, state of the world, the type's version that was ACKed last, or, delta, the resource's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from envoy.service.discovery.v3 import discovery_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from google.protobuf import any_pb2

    from xds_server.discovery.subscription import Subscription

PERIODS: Final = 3
"""Heartbeats in one time to live: two may be late."""
_MAX_OFFERED: Final = 16


class Heartbeats:
    """What one client has of endpoints, to be renewed every `ttl_seconds / PERIODS`. 0 seconds: off."""

    def __init__(self, ttl_seconds: float) -> None:
        self.ttl_seconds = ttl_seconds
        self.due = False
        self.nonce = ""
        """Of the newest heartbeat."""
        self.taken: dict[str, str] = {}
        self._offered: dict[str, Mapping[str, str]] = {}

    def offered(self, nonce: str, given: Mapping[str, str], removed: Iterable[str] = ()) -> None:
        """Note a response with endpoints, name to version."""
        if not self.ttl_seconds:
            return
        for name in removed:
            self.taken.pop(name, None)
        if len(self._offered) >= _MAX_OFFERED:
            del self._offered[next(iter(self._offered))]
        self._offered[nonce] = given

    def answered(self, nonce: str, *, taken: bool) -> None:
        """Note an ACK or NACK."""
        given = self._offered.pop(nonce, None)
        if taken and given is not None:
            self.taken.update(given)

    def to_renew(self, endpoints: Subscription | None) -> dict[str, str]:
        """Return what to renew now, name to version; empty: nothing, or not yet."""
        if not self.due or (endpoints is not None and endpoints.outstanding):
            return {}
        self.due = False
        if endpoints is None:
            return {}
        self.taken = {name: version for name, version in self.taken.items() if endpoints.covers(name)}
        return self.taken


def living(
    name: str, version: str, ttl_seconds: float, body: any_pb2.Any | None = None
) -> discovery_pb2.Resource:
    """Return a resource with its time to live, if any; without `body`, its heartbeat."""
    made = discovery_pb2.Resource(name=name, version=version, resource=body)
    if ttl_seconds:
        made.ttl.FromNanoseconds(round(ttl_seconds * 1e9))
    return made
