"""What Envoys are told at one moment: immutable resources, versioned by their content."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.protobuf import any_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


@dataclass(frozen=True, slots=True)
class Resource:
    """One xDS resource, serialised once and shared by every stream."""

    name: str
    type_url: str
    version: str
    """Hash of the serialised bytes: equal content, equal version, in every replica and every run."""
    body: any_pb2.Any

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
        versions = {
            type_url: sha256(
                "\n".join(f"{entry.name} {entry.version}" for entry in named.values()).encode()
            ).hexdigest()[:16]
            for type_url, named in grouped.items()
        }
        frozen = {type_url: MappingProxyType(named) for type_url, named in grouped.items()}
        return cls(MappingProxyType(frozen), MappingProxyType(versions))

    def of_type(self, type_url: str) -> Mapping[str, Resource]:
        """Resources of one type by name; empty for a type that is not served."""
        return self.resources.get(type_url, {})

    def version(self, type_url: str) -> str:
        """The version of a type as state-of-the-world responses carry it."""
        return self.versions.get(type_url, "empty")


class SnapshotStore:
    """The newest snapshot, swapped at once; listeners are called with each new one.

    Single-threaded: all calls come from one event loop.
    """

    def __init__(self) -> None:
        self._snapshot: Snapshot | None = None
        self._listeners: set[Callable[[Snapshot], None]] = set()

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot; None until the first full sync, when nothing may be served."""
        return self._snapshot

    def set(self, snapshot: Snapshot) -> bool:
        """Swap the snapshot; returns whether anything differs from the one before."""
        if self._snapshot is not None and self._snapshot.versions == snapshot.versions:
            return False
        self._snapshot = snapshot
        for listener in tuple(self._listeners):
            listener(snapshot)
        return True

    def subscribe(self, listener: Callable[[Snapshot], None]) -> Callable[[], None]:
        """Call `listener` with each new snapshot; returns what ends that."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)
