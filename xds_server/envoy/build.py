"""From settings, membership and weights to the snapshot that Envoys get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleet.errors import SnapshotError
from fleet.identity import cached_by_identity
from fleet.models import tables
from fleet.names import TYPE_SECRET
from xds_server.envoy.clusters import clusters
from xds_server.envoy.listeners import listeners
from xds_server.envoy.proxyless import api_listeners
from xds_server.envoy.routes import AS_CONFIGURED, routes
from xds_server.snapshot.consistency import check
from xds_server.snapshot.endpoints import load_assignments
from xds_server.snapshot.snapshot import Snapshot
from xds_server.tls.secret_names import secret_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.endpoint import Membership
    from fleet.models import ModelTable
    from fleet.settings import Settings
    from xds_server.http2.protocol_choice import ProtocolChoice
    from xds_server.snapshot.snapshot import Resource


def build_snapshot(
    settings: Settings,
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
    undiscovered: frozenset[str] = frozenset(),
    resources: tuple[Resource, ...] | None = None,
) -> Snapshot:
    """Build the load assignments, and join them with all other resources.

    Args:
        settings: listeners, pools and where ext_proc is.
        membership: the endpoints of each pool of the settings.
        weights: address to weight, 1 to 10,000; an address that is missing counts as its peers' mean.
        unhealthy: addresses to mark UNHEALTHY.
        draining: addresses to mark DRAINING: they finish what they have begun and get nothing new.
        undiscovered: pools whose endpoints are unknown: they have a cluster but no assignment, so an Envoy
            that has endpoints for them keeps these.
        resources: those of `of_settings`, and the secrets that TLS of listeners and pools refers to; None:
            those of the settings alone.

    Raises:
        SnapshotError: the result would contradict itself and must not be served.
    """
    names = {pool.name for pool in settings.pools}
    if foreign := sorted(pool.name for pool in membership.pools if pool.name not in names):
        raise SnapshotError(f"membership has pools that the settings do not have: {', '.join(foreign)}")
    if resources is None:
        resources = of_settings(settings, AS_CONFIGURED, tables(settings, membership))
    assignments = load_assignments(membership, weights, unhealthy, draining)
    snapshot = Snapshot.of([*resources, *assignments])
    if missing := secret_names(settings) - snapshot.of_type(TYPE_SECRET).keys():
        raise SnapshotError(f"secrets are referred to but missing: {', '.join(sorted(missing))}")
    check(snapshot, undiscovered)
    return snapshot


@cached_by_identity
def of_settings(
    settings: Settings, protocols: ProtocolChoice, models: Mapping[str, ModelTable]
) -> tuple[Resource, ...]:
    """Return the clusters, listeners and routes; they change with no endpoint."""
    return (
        *clusters(settings),
        *listeners(settings),
        *api_listeners(settings),
        *routes(settings, protocols, models),
    )
