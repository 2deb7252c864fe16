"""State of the world: each response names its version, clusters and listeners come complete.

Endpoint and route responses carry only changed and newly subscribed resources: the protocol lets these
types come in part, so a weight change in one pool costs no bytes for the others.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.wire_fields import sized
from xds_server.discovery.client import error_of
from xds_server.discovery.shared_response import Response, cached_decoder
from xds_server.discovery.stream_state import StreamState
from xds_server.discovery.subscription import MAX_VERSION_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xds_server.discovery.changes import Answer, Changes
    from xds_server.discovery.subscription import Subscription
    from xds_server.snapshot.snapshot import Resource, Snapshot

_Request = discovery_pb2.DiscoveryRequest
_decode = cached_decoder(_Request.FromString)


class Sotw(StreamState):
    """`DiscoveryRequest` in, `DiscoveryResponse` out."""

    name = "sotw"
    name_tags = frozenset({sized(_Request.RESOURCE_NAMES_FIELD_NUMBER)})
    newest_only = True

    @staticmethod
    def decode(message: bytes) -> Any:
        """Parse a request; `DecodeError` if the bytes are none."""
        return _decode(message)

    @staticmethod
    def compose(type_url: str, version: str, resources: Sequence[Resource], removed: Sequence[str]) -> bytes:
        """Serialise a response without nonce; SotW has no field for `removed`."""
        del removed
        return bytes(
            discovery_pb2.DiscoveryResponse(
                version_info=version, type_url=type_url, resources=[resource.body for resource in resources]
            ).SerializeToString()
        )

    def _begin(self, subscription: Subscription, request: Any) -> None:
        subscription.replace(request.resource_names)
        subscription.first_version = request.version_info[:MAX_VERSION_CHARS]

    def _continue(self, subscription: Subscription, request: Any) -> Answer | None:
        answer = subscription.answer(request.response_nonce, error_of(request))
        subscription.replace(request.resource_names)
        return answer

    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Response | None:
        type_url = subscription.type_url
        version = snapshot.version(type_url)
        if subscription.full_state:
            resources, version = self._full(subscription, changes, snapshot)
        else:
            resources = changes.changed
            if not resources and not subscription.initial_response_pending:
                # Endpoints and routes end with the resources that refer to them; absence says nothing here.
                subscription.record(changes)
                return None
        fresh = not (subscription.initial_response_pending and subscription.first_version == version)
        self._ordering.note_returned(type_url, changes.changed, fresh=fresh)
        subscription.record(changes)
        return self._send(subscription, version, resources)

    def _full(
        self, subscription: Subscription, changes: Changes, snapshot: Snapshot
    ) -> tuple[Sequence[Resource], str]:
        """Everything subscribed and the resources whose removal waits, with the version of that set."""
        here = snapshot.of_type(subscription.type_url)
        new = {name: resource for name, resource in here.items() if subscription.covers(name)}
        awaiting_removal = {
            name: resource
            for name, resource in subscription.full_resources.items()
            if name not in here and subscription.covers(name) and name not in changes.gone
        }
        subscription.full_resources = {**awaiting_removal, **new}
        version = snapshot.version(subscription.type_url)
        if awaiting_removal:
            text = "\n".join(f"{entry.name} {entry.version}" for entry in awaiting_removal.values())
            version = f"{version}+{sha256(text.encode()).hexdigest()[:8]}"
        return (*new.values(), *awaiting_removal.values()), version
