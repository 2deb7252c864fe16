"""From settings, membership and weights to the snapshot that Envoys are told."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from fleet.errors import SnapshotError
from fleet.names import TYPE_SECRET
from xds_server.envoy.clusters import clusters
from xds_server.envoy.listeners import listeners
from xds_server.envoy.proxyless import api_listeners
from xds_server.envoy.routes import NOBODY_MOVED, routes
from xds_server.snapshot.consistency import check
from xds_server.snapshot.endpoints import load_assignments
from xds_server.snapshot.snapshot import Snapshot
from xds_server.tls.secret_names import secret_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleet.endpoint import Membership
    from fleet.settings import Settings
    from xds_server.http2.ways import Ways
    from xds_server.snapshot.snapshot import Resource


def build_snapshot(
    settings: Settings,
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
    unheard: frozenset[str] = frozenset(),
    secrets: tuple[Resource, ...] = (),
    ways: Ways = NOBODY_MOVED,
) -> Snapshot:
    """Build all resources: those of the settings once, endpoints and weights anew each time.

    Args:
        settings: listeners, pools and where ext_proc is.
        membership: the endpoints of each pool of the settings.
        weights: address to weight, 1 to 10,000; an address that is missing counts as its peers' mean.
        unhealthy: addresses to mark UNHEALTHY.
        draining: addresses to mark DRAINING: they finish what they have begun and get nothing new.
        unheard: pools whose endpoints are unknown: they have a cluster but no assignment, so an Envoy that
            has endpoints for them keeps these.
        secrets: what TLS of listeners and pools refers to.
        ways: which pools that speak HTTP/2 are spoken to in HTTP/1.1.

    Raises:
        SnapshotError: the result would contradict itself and must not be served.
    """
    known = {pool.name for pool in settings.pools}
    if strangers := sorted(pool.name for pool in membership.pools if pool.name not in known):
        raise SnapshotError(f"membership has pools that the settings do not have: {', '.join(strangers)}")
    snapshot = Snapshot.of(
        [
            *_of_settings(_Same(settings), ways),
            *secrets,
            *load_assignments(membership, weights, unhealthy, draining),
        ]
    )
    if missing := secret_names(settings) - snapshot.of_type(TYPE_SECRET).keys():
        raise SnapshotError(f"secrets are referred to but missing: {', '.join(sorted(missing))}")
    check(snapshot, unheard)
    return snapshot


class _Same:
    """Settings compared by identity: they are frozen, and hashing them all would cost more than it saves."""

    __slots__ = ("settings",)

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.settings is self.settings

    def __hash__(self) -> int:
        return id(self.settings)


@lru_cache(maxsize=2)
def _of_settings(same: _Same, ways: Ways) -> tuple[Resource, ...]:
    settings = same.settings
    return (*clusters(settings), *listeners(settings), *api_listeners(settings), *routes(settings, ways))
