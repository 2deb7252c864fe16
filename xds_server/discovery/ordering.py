"""The order of the resource types on one stream, shared by SotW and delta.

Order
    Make before break: secrets, clusters, their endpoints, listeners, routes; then the removals of clusters
    and endpoints, once listeners and routes no longer name them.
Warming
    Envoy warms a new or changed cluster and needs its assignment again, even an identical one. So a
    response that adds or changes a cluster forces its assignment, once. Only a change of content does
    that: a NACK, or a cluster that the client already had, does not. A cluster with TLS also warms until
    Envoy has its secrets, to which Envoy subscribes once it has the cluster.
Holding
    Listeners and routes wait until the client has answered the clusters sent before them and has received
    the assignments and secrets of the new ones. Otherwise they would send requests to a cluster that is
    still warming. A listener's own secret needs no rule: until Envoy has it, the old listener goes
    on. `release` ends the wait for clients that never answer: the loop calls it after a bounded time.
Lingering
    A request that was routed to a cluster may still wait for its body or its pick, and fails if the
    cluster is removed meanwhile. So clusters, their endpoints and secrets are removed only at
    `remove_lingering`, which the loop calls some time after it sent the last listener or route.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from fleet.envoy_api.config.cluster.v3 import cluster_pb2
from fleet.envoy_api.extensions.transport_sockets.tls.v3 import tls_pb2
from fleet.names import SERVED_TYPES, TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_LISTENER, TYPE_ROUTE, TYPE_SECRET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from xds_server.discovery.changes import Changes
    from xds_server.discovery.subscription import Subscription
    from xds_server.snapshot.snapshot import Resource, Snapshot

_REFERRED: Final = (TYPE_CLUSTER, TYPE_ENDPOINT, TYPE_SECRET)
_REFERRING: Final = (TYPE_LISTENER, TYPE_ROUTE)


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds that the loop waits before `release` and before `remove_lingering`."""

    hold_seconds: float = 1.0
    linger_seconds: float = 5.0


class ResourceOrdering:
    """Selects the next changes to send over all `subscriptions` of a stream.

    Without `lingers` removals do not wait for `remove_lingering`.
    """

    def __init__(self, subscriptions: Mapping[str, Subscription], *, lingers: bool) -> None:
        self._subscriptions = subscriptions
        self._lingers = lingers
        self._removals_allowed = not lingers
        self._warming: set[str] = set()
        self._warming_secrets: set[str] = set()
        self._released = False

    def next_changes(self, snapshot: Snapshot) -> tuple[Subscription, Changes] | None:
        """Return the first type with changes to send, and the changes; None if there are none for now."""
        defer_removals = not self._removals_allowed or self._references_pending(snapshot)
        hold = self._must_hold(snapshot)
        for type_url in SERVED_TYPES:
            subscription = self._subscriptions.get(type_url)
            if subscription is None or (hold and type_url in _REFERRING):
                continue
            changes = subscription.changes(snapshot)
            if defer_removals and type_url in _REFERRED:
                changes = changes.without_removals()
            if changes or subscription.initial_response_pending:
                return subscription, changes
        if self._lingers and not self._has_removals(snapshot):
            self._removals_allowed = False
        return None

    def holding(self, snapshot: Snapshot) -> bool:
        """Whether listeners or routes wait for the client to warm its clusters."""
        return self._must_hold(snapshot) and self._references_pending(snapshot)

    def release(self) -> None:
        """End the wait of listeners and routes until the next change of clusters."""
        self._released = True

    def lingering(self, snapshot: Snapshot) -> bool:
        """Whether removals of clusters or endpoints wait only for `remove_lingering`."""
        if self._removals_allowed or self._references_pending(snapshot):
            return False
        return self._has_removals(snapshot)

    def remove_lingering(self) -> None:
        """Permit the removals that wait now."""
        self._removals_allowed = True

    def note_returned(self, type_url: str, resources: Iterable[Resource], *, fresh: bool) -> None:
        """Apply the effects of a response on other types; call before `record`.

        `fresh`: the client did not have exactly these resources from an earlier stream.
        """
        if type_url == TYPE_ENDPOINT:
            self._warming.difference_update(resource.name for resource in resources)
        if type_url == TYPE_SECRET:
            self._warming_secrets.difference_update(resource.name for resource in resources)
        if type_url != TYPE_CLUSTER:
            return
        self._released = False
        if not fresh:
            return
        clusters, endpoints, secrets = (self._subscriptions.get(kind) for kind in _REFERRED)
        assert clusters is not None
        returned_secrets = {} if secrets is None else secrets.returned
        for resource in resources:
            if clusters.returned.get(resource.name) == resource.version:
                continue
            self._warming_secrets.update(
                name for name in secret_names(resource.body.value) if not returned_secrets.get(name)
            )
            name = assignment_name(resource.body.value)
            if name is None:
                continue
            if endpoints is not None or not clusters.initial_response_pending:
                # On the first response of a stream without endpoints Envoy waits by itself.
                self._warming.add(name)
            if endpoints is not None and endpoints.covers(name):
                endpoints.force(name)

    def note_shared(self, names: Iterable[str], snapshot: Snapshot) -> None:
        """Apply the effects of a shared response: the endpoints of `names` no longer warm."""
        if self._warming:
            self._must_hold(snapshot)
            self._warming.difference_update(names)

    def _must_hold(self, snapshot: Snapshot) -> bool:
        clusters = self._subscriptions.get(TYPE_CLUSTER)
        if clusters is None or self._released:
            return False
        if clusters.outstanding:
            return True
        self._warming &= snapshot.of_type(TYPE_ENDPOINT).keys()
        self._warming_secrets &= snapshot.of_type(TYPE_SECRET).keys()
        return bool(self._warming or self._warming_secrets)

    def _references_pending(self, snapshot: Snapshot) -> bool:
        return any(self._pending(type_url, snapshot) for type_url in _REFERRING)

    def _has_removals(self, snapshot: Snapshot) -> bool:
        referred = (self._subscriptions.get(type_url) for type_url in _REFERRED)
        return any(entry is not None and bool(entry.changes(snapshot).gone) for entry in referred)

    def _pending(self, type_url: str, snapshot: Snapshot) -> bool:
        subscription = self._subscriptions.get(type_url)
        return subscription is not None and (
            subscription.initial_response_pending or bool(subscription.changes(snapshot))
        )


@lru_cache(maxsize=1024)
def assignment_name(cluster: bytes) -> str | None:
    """Name of the assignment that a serialised cluster needs; None: it is no EDS cluster."""
    message = cluster_pb2.Cluster.FromString(cluster)
    if message.type != cluster_pb2.Cluster.EDS:
        return None
    return str(message.eds_cluster_config.service_name or message.name)


@lru_cache(maxsize=1024)
def secret_names(cluster: bytes) -> tuple[str, ...]:
    """Names of the secrets over ADS that a serialised cluster needs."""
    message = cluster_pb2.Cluster.FromString(cluster)
    sockets = (
        message.transport_socket,
        *(match.transport_socket for match in message.transport_socket_matches),
    )
    names: list[str] = []
    for socket in sockets:
        context = tls_pb2.UpstreamTlsContext()
        if not socket.typed_config.Unpack(context):
            continue
        common = context.common_tls_context
        configs = (
            *common.tls_certificate_sds_secret_configs,
            common.validation_context_sds_secret_config,
            common.combined_validation_context.validation_context_sds_secret_config,
        )
        names += [config.name for config in configs if config.sds_config.HasField("ads")]
    return tuple(names)
