"""What a client does not have yet of one type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from xds_server.snapshot.snapshot import Resource

ABSENT: Final = ""
"""In `returned`: a response said that the name does not exist."""
UNSURE: Final = "?"
"""In `returned`: the client may have this version, another one or none."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a client does not have yet, in name order."""

    changed: tuple[Resource, ...] = ()
    missing: tuple[str, ...] = ()
    """Subscribed, non-existent, and not yet reported as such."""
    gone: tuple[str, ...] = ()
    """The client has them; they no longer exist."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.missing or self.gone)

    def without_removals(self) -> Changes:
        """The changes that remove nothing from the client."""
        return Changes(self.changed, self.missing)


def split_removed(
    lost: Iterable[str], returned: Mapping[str, str], forced: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split non-existent names into those that the client has and those to report as missing once."""
    names = tuple(lost)
    gone = tuple(name for name in names if returned.get(name, ABSENT) != ABSENT)
    missing = tuple(
        name
        for name in names
        if returned.get(name, ABSENT) == ABSENT and (name in forced or name not in returned)
    )
    return gone, missing
