"""The snapshot of a node group: its near endpoints weigh more than for other groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleet.names import TYPE_ENDPOINT
from xds_server.snapshot.endpoints import assignments
from xds_server.weights.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleet.endpoint import Membership
    from fleet.settings import TopologySettings
    from xds_server.snapshot.assignment import Assignment
    from xds_server.snapshot.snapshot import NodeGroup, Snapshot
    from xds_server.weights.columns import FloatArray


def group_snapshots(
    snapshot: Snapshot,
    settings: TopologySettings,
    membership: Membership,
    weights: Mapping[str, int],
    unhealthy: frozenset[str],
    draining: frozenset[str] = frozenset(),
) -> Callable[[NodeGroup], Snapshot] | None:
    """Return a function that makes a group's snapshot from the base `snapshot` of the same arguments.

    None when no group can differ, because in each pool all endpoints stand in one place.
    """
    current = assignments(membership, weights, unhealthy, draining)
    if all(len(assignment.layout.localities) < 2 for assignment in current):
        return None
    return GroupSnapshots(settings, snapshot, current, Topology(settings))


@dataclass(frozen=True)
class GroupSnapshots:
    """Makes them from one moment's assignments. Equal for equal settings: the rest is in the snapshot."""

    settings: TopologySettings
    snapshot: Snapshot = field(compare=False)
    assignments: tuple[Assignment, ...] = field(compare=False)
    topology: Topology = field(compare=False)
    _by_factors: dict[tuple[bytes, ...], Snapshot] = field(default_factory=dict, compare=False)

    def __call__(self, group: NodeGroup) -> Snapshot:
        """Return the group's snapshot: one object for all groups with equal distances to all endpoints.

        Only proportions count, so a group with one distance to each pool gets the base snapshot. Types
        other than endpoints are the same objects for all groups.
        """
        factors = [
            self.topology.factors(group.locality, assignment.layout.places) for assignment in self.assignments
        ]
        key = tuple(b"" if _all_equal(row) else row.tobytes() for row in factors)
        if not any(key):
            return self.snapshot
        if key not in self._by_factors:
            base = self.snapshot.of_type(TYPE_ENDPOINT)
            self._by_factors[key] = self.snapshot.replacing(
                TYPE_ENDPOINT,
                [
                    assignment.resource(row) if differs else base[assignment.layout.pool]
                    for assignment, row, differs in zip(self.assignments, factors, key, strict=True)
                ],
            )
        return self._by_factors[key]


def _all_equal(factors: FloatArray) -> bool:
    return bool((factors == factors[:1]).all())
