"""The content of responses: what a client does not have yet, what it was sent, and its answers.

In SotW an answer covers earlier responses too: Envoy may answer several at once, and a NACK then may concern
any of them. In delta an answer concerns its own response only.
"""

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
MAX_ERROR_CHARS: Final = 500
_MAX_UNANSWERED: Final = 16
"""Answers to older responses are no longer matched."""


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


@dataclass(frozen=True, slots=True)
class Answer:
    """A client's answer to one response: `error` is None for an ACK."""

    type_url: str
    version: str
    error: str | None
    name: str = ""
    """The resource that was refused alone; empty: an ACK, or the response had several resources."""


@dataclass(frozen=True, slots=True)
class Sent:
    """The content of a response."""

    version: str
    """Of the type."""
    carried: Mapping[str, str]
    """Name to version, which is empty for a removal. Nothing where a response always carries everything."""

    @property
    def repeatable(self) -> bool:
        """Whether a NACK may concern one of several resources, so that each is to be sent again."""
        return len(self.carried) > 1 and any(self.carried.values())


class Unanswered(dict[str, Sent]):
    """Nonce to response, oldest first. `cumulative`: an answer covers earlier responses."""

    def __init__(self, *, cumulative: bool) -> None:
        super().__init__()
        self.cumulative = cumulative

    def add(self, nonce: str, sent: Sent) -> None:
        """Add a response; beyond the limit the oldest is dropped."""
        if len(self) >= _MAX_UNANSWERED:
            del self[next(iter(self))]
        self[nonce] = sent

    def take(self, nonce: str) -> list[Sent]:
        """Remove and return the responses that an answer covers, its own last; empty: unknown nonce."""
        if nonce not in self:
            return []
        if not self.cumulative:
            return [self.pop(nonce)]
        covered = []
        for key in list(self):
            covered.append(self.pop(key))
            if key == nonce:
                break
        return covered
