"""What a client does not have yet of one type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from xds_server.snapshot.snapshot import Resource

ABSENT: Final = ""
"""In `given`: the client was told that the name does not exist."""
UNSURE: Final = "?"
"""In `given`: the client may have it, in this version or another, or not."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a client does not have yet, in name order."""

    changed: tuple[Resource, ...] = ()
    missing: tuple[str, ...] = ()
    """Asked for, non-existent, and not told yet."""
    gone: tuple[str, ...] = ()
    """The client holds them; they no longer exist."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.gone)

    def without_removals(self) -> Changes:
        """Everything but what takes something away from the client."""
        return Changes(self.changed, self.missing)


def taken_away(
    lost: Iterable[str], given: Mapping[str, str], due: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Divide names that do not exist into those that the client has and those it is to be told of once."""
    names = tuple(lost)
    gone = tuple(name for name in names if given.get(name, ABSENT) != ABSENT)
    missing = tuple(
        name for name in names if given.get(name, ABSENT) == ABSENT and (name in due or name not in given)
    )
    return gone, missing
