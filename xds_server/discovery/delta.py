"""Delta: each response carries what changed and what is gone, each resource has its own version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from envoy.service.discovery.v3 import discovery_pb2

from xds_server.discovery.variant import Variant, error_of

if TYPE_CHECKING:
    from xds_server.discovery.subscription import Answer, Changes, Subscription
    from xds_server.snapshot.snapshot import Snapshot


class Delta(Variant[Any, Any]):
    """`DeltaDiscoveryRequest` in, `DeltaDiscoveryResponse` out."""

    name = "delta"

    def _begin(self, subscription: Subscription, request: Any) -> None:
        subscription.begin(request.resource_names_subscribe, request.initial_resource_versions)
        subscription.drop(request.resource_names_unsubscribe)

    def _continue(self, subscription: Subscription, request: Any) -> Answer | None:
        answer = subscription.answer(request.response_nonce, error_of(request))
        # Unsubscribing first: a name in both lists is one that the client wants afresh.
        subscription.drop(request.resource_names_unsubscribe)
        subscription.add(request.resource_names_subscribe)
        return answer

    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Any | None:
        self.note_given(subscription.type_url, changes.changed, fresh=True)
        subscription.record(changes, snapshot)
        version = snapshot.version(subscription.type_url)
        nonce = self._next_nonce()
        subscription.sent(nonce, version, newest_only=False)
        return discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=version,
            type_url=subscription.type_url,
            nonce=nonce,
            resources=[
                discovery_pb2.Resource(name=entry.name, version=entry.version, resource=entry.body)
                for entry in changes.changed
            ],
            removed_resources=[*changes.missing, *changes.gone],
        )
