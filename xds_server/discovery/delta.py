"""Delta: each response carries what changed and what is gone, each resource has its own version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fleet.envoy_api.service.discovery.v3 import discovery_pb2
from xds_server.discovery.client import error_of
from xds_server.discovery.plan import Response, remembering
from xds_server.discovery.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from xds_server.discovery.answers import Answer
    from xds_server.discovery.changes import Changes
    from xds_server.discovery.subscription import Subscription
    from xds_server.snapshot.snapshot import Resource, Snapshot

_decode = remembering(discovery_pb2.DeltaDiscoveryRequest.FromString)


class Delta(Variant):
    """`DeltaDiscoveryRequest` in, `DeltaDiscoveryResponse` out."""

    name = "delta"
    newest_only = False

    @staticmethod
    def decode(message: bytes) -> Any:
        """Return the request that the bytes are; `DecodeError` if none."""
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
        # Unsubscribing first: a name in both lists is one that the client wants afresh.
        subscription.drop(request.resource_names_unsubscribe)
        subscription.add(request.resource_names_subscribe)
        return answer

    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Response | None:
        self._rules.note_given(subscription.type_url, changes.changed, fresh=True)
        subscription.record(changes)
        version = snapshot.version(subscription.type_url)
        return self._send(subscription, version, changes.changed, changes.gone, changes.missing)
