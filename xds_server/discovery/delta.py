"""Delta: each response carries changed and removed resources, each with its own version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from fleet.wire_fields import sized
from xds_server.discovery.client import error_of
from xds_server.discovery.shared_response import Response, cached_decoder
from xds_server.discovery.stream_state import StreamState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xds_server.discovery.changes import Answer, Changes
    from xds_server.discovery.subscription import Subscription
    from xds_server.snapshot.snapshot import Resource, Snapshot

_Request = discovery_pb2.DeltaDiscoveryRequest
_decode = cached_decoder(_Request.FromString)


class Delta(StreamState):
    """`DeltaDiscoveryRequest` in, `DeltaDiscoveryResponse` out."""

    name = "delta"
    name_tags = frozenset(
        sized(number)
        for number in (
            _Request.RESOURCE_NAMES_SUBSCRIBE_FIELD_NUMBER,
            _Request.RESOURCE_NAMES_UNSUBSCRIBE_FIELD_NUMBER,
            _Request.INITIAL_RESOURCE_VERSIONS_FIELD_NUMBER,
        )
    )
    newest_only = False

    @staticmethod
    def decode(message: bytes) -> Any:
        """Parse a request; `DecodeError` if the bytes are none."""
        return _decode(message)

    @staticmethod
    def compose(type_url: str, version: str, resources: Sequence[Resource], removed: Sequence[str]) -> bytes:
        """Serialise a response without nonce."""
        wrapped = [
            discovery_pb2.Resource(name=entry.name, version=entry.version, resource=entry.body)
            for entry in resources
        ]
        return bytes(
            discovery_pb2.DeltaDiscoveryResponse(
                system_version_info=version, type_url=type_url, resources=wrapped, removed_resources=removed
            ).SerializeToString()
        )

    def _begin(self, subscription: Subscription, request: Any) -> None:
        subscription.begin(request.resource_names_subscribe, request.initial_resource_versions)
        subscription.drop(request.resource_names_unsubscribe)

    def _continue(self, subscription: Subscription, request: Any) -> Answer | None:
        answer = subscription.answer(request.response_nonce, error_of(request))
        # Unsubscribing first: a name in both lists is to be sent again.
        subscription.drop(request.resource_names_unsubscribe)
        subscription.add(request.resource_names_subscribe)
        return answer

    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Response | None:
        self._ordering.note_returned(subscription.type_url, changes.changed, fresh=True)
        subscription.record(changes)
        version = snapshot.version(subscription.type_url)
        return self._send(subscription, version, changes.changed, changes.gone, changes.missing)
