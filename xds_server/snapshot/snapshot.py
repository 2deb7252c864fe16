"""The xDS resources of one moment: immutable, versioned by their content."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge

from fleet.endpoint import Locality
from fleet.envoy_api.google.protobuf import any_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

logger = logging.getLogger(__name__)

DEFAULT_NODE_GROUPS: Final = 64
_NOWHERE: Final = Locality()


@dataclass(frozen=True, slots=True)
class Resource:
    """One xDS resource, serialised once and shared by every stream."""

    name: str
    type_url: str
    version: str
    """Hash of the serialised bytes: equal content, equal version, in every replica and every run."""
    body: any_pb2.Any = field(repr=False)

    @classmethod
    def of(cls, name: str, type_url: str, serialised: bytes) -> Resource:
        """Wrap deterministic bytes."""
        version = sha256(serialised).hexdigest()[:16]
        return cls(name, type_url, version, any_pb2.Any(type_url=type_url, value=serialised))


@dataclass(frozen=True)
class Snapshot:
    """Type URL to name to resource, with one version a type."""

    resources: Mapping[str, Mapping[str, Resource]]
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, resources: Iterable[Resource]) -> Snapshot:
        """Group resources by type and derive each type's version from its resources' versions."""
        grouped: dict[str, dict[str, Resource]] = {}
        for resource in sorted(resources, key=lambda resource: (resource.type_url, resource.name)):
            grouped.setdefault(resource.type_url, {})[resource.name] = resource
        versions = {type_url: _version(named) for type_url, named in grouped.items()}
        frozen = {type_url: MappingProxyType(named) for type_url, named in grouped.items()}
        return cls(MappingProxyType(frozen), MappingProxyType(versions))

    def replacing(self, type_url: str, resources: Iterable[Resource]) -> Snapshot:
        """Return a snapshot with other resources of one type; all the rest is shared."""
        named = {resource.name: resource for resource in sorted(resources, key=lambda entry: entry.name)}
        return Snapshot(
            MappingProxyType({**self.resources, type_url: MappingProxyType(named)}),
            MappingProxyType({**self.versions, type_url: _version(named)}),
        )

    def of_type(self, type_url: str) -> Mapping[str, Resource]:
        """Resources of one type by name; empty for a type that is not served."""
        return self.resources.get(type_url, {})

    def version(self, type_url: str) -> str:
        """The version of a type as state-of-the-world responses carry it."""
        return self.versions.get(type_url, "empty")


def _version(resources: Mapping[str, Resource]) -> str:
    text = "\n".join(f"{entry.name} {entry.version}" for entry in resources.values())
    return sha256(text.encode()).hexdigest()[:16]


class Node(Protocol):
    """The parts of a client's node that select its snapshot."""

    @property
    def cluster(self) -> str:
        """Name of the group of proxies with the same purpose."""

    @property
    def locality(self) -> Locality:
        """Its region, zone and sub-zone."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Clients that share a snapshot."""

    locality: Locality
    cluster: str


class SnapshotStore:
    """The newest snapshot, swapped at once; listeners are called with each new one.

    Node groups may have a snapshot of their own: made when the first client of the group reads it, kept
    until the next `set`. At most `max_groups` groups have one; a group without a read since the
    snapshot before the last gives its place up to a new one. Clients beyond that get the base snapshot.

    Single-threaded: all calls come from one event loop.
    """

    def __init__(
        self, max_groups: int = DEFAULT_NODE_GROUPS, registry: CollectorRegistry | None = None
    ) -> None:
        registry = registry or CollectorRegistry()
        self.max_groups = max_groups
        self._snapshot: Snapshot | None = None
        self._for_group: Callable[[NodeGroup], Snapshot] | None = None
        self._by_group: dict[NodeGroup, Snapshot] = {}
        self._last_read: dict[NodeGroup, int] = {}
        """Number of the `set` after which a group was read last."""
        self._sets = 0
        self._listeners: set[Callable[[Snapshot], None]] = set()
        self._groups = Gauge(
            "warmroute_xds_node_groups", "Node groups with a snapshot of their own", registry=registry
        )
        self._ungrouped = Counter(
            "warmroute_xds_ungrouped_reads_total",
            "Snapshots read without regard to nearness, over limits.node_groups",
            registry=registry,
        )
        self._warned = False

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot; None until the first full sync, when nothing may be served."""
        return self._snapshot

    @property
    def groups(self) -> tuple[NodeGroup, ...]:
        """The groups that have a snapshot of their own, oldest first."""
        return tuple(self._last_read) if self._for_group is not None else ()

    def snapshot_for(self, node: Node | None) -> Snapshot | None:
        """Return the newest snapshot for one client; None as for `snapshot`.

        A client without a node or a locality gets the base snapshot.
        """
        base = self._snapshot
        if base is None or self._for_group is None or node is None or node.locality == _NOWHERE:
            return base
        group = NodeGroup(node.locality, node.cluster)
        snapshot = self._by_group.get(group)
        if snapshot is None:
            if not self._admit(group):
                return base
            snapshot = self._by_group[group] = self._for_group(group)
        return snapshot

    def set(self, snapshot: Snapshot, for_group: Callable[[NodeGroup], Snapshot] | None = None) -> bool:
        """Swap the snapshot; returns whether it differs from the one before.

        `for_group` makes the snapshot of a group; None: all groups share `snapshot`. Functions that are equal
        make equal snapshots of equal ones.
        """
        current = self._snapshot
        if current is not None and current.versions == snapshot.versions and self._for_group == for_group:
            return False
        self._snapshot = snapshot
        self._for_group = for_group
        self._by_group.clear()
        self._sets += 1
        for listener in tuple(self._listeners):
            listener(snapshot)
        return True

    def subscribe(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call `listener` with each new snapshot; returns what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def _admit(self, group: NodeGroup) -> bool:
        if group not in self._last_read and len(self._last_read) >= self.max_groups:
            oldest = min(self._last_read, key=self._last_read.__getitem__)
            if self._last_read[oldest] > self._sets - 2:
                self._refuse(group)
                return False
            del self._last_read[oldest]
        self._last_read[group] = self._sets
        self._groups.set(len(self._last_read))
        return True

    def _refuse(self, group: NodeGroup) -> None:
        self._ungrouped.inc()
        if not self._warned:
            logger.warning(
                "Over limits.node_groups = %d groups of Envoys, %s gets weights without regard to nearness",
                self.max_groups,
                group,
            )
        self._warned = True
